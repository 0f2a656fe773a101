// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The bounds of kubelet for what a container leaves as its last words.
const (
	maxTerminationMessage = 4096
	maxTerminationLog     = 2048
)

// runProbes probes the container until ctx ends: first whether it has started,
// then whether it lives and is ready.
func (c *container) runProbes(ctx context.Context) {
	if c.spec.StartupProbe != nil && !c.awaitStart(ctx) {
		return
	}
	c.change(func() {
		c.started = true
		c.ready = c.spec.ReadinessProbe == nil
	})
	var probes sync.WaitGroup
	if probe := c.spec.ReadinessProbe; probe != nil {
		probes.Go(func() {
			c.repeat(ctx, probe, func(ok bool) bool {
				c.change(func() { c.ready = ok })
				return true
			})
		})
	}
	if probe := c.spec.LivenessProbe; probe != nil {
		probes.Go(func() {
			c.repeat(ctx, probe, func(ok bool) bool { return c.endUnless(ctx, ok, "liveness", probe) })
		})
	}
	probes.Wait()
}

// awaitStart runs the startup probe; false when the container does not start.
func (c *container) awaitStart(ctx context.Context) bool {
	started := false
	c.repeat(ctx, c.spec.StartupProbe, func(ok bool) bool {
		started = ok
		c.endUnless(ctx, ok, "startup", c.spec.StartupProbe)
		return false
	})
	return started
}

// endUnless ends a container that failed a probe, except one that ends already.
// It returns whether to go on probing.
func (c *container) endUnless(ctx context.Context, ok bool, kind string, probe *corev1.Probe) bool {
	if ok {
		return true
	}
	if closed(c.pod.stopping) {
		return false
	}
	c.pod.event(ctx, "Unhealthy", fmt.Sprintf("container %s failed its %s probe and will be restarted", c.spec.Name, kind))
	grace := c.pod.grace()
	if probe.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
	}
	c.terminate(ctx, grace)
	return false
}

// repeat calls decided whenever enough probes in a row agree, until it returns
// false or ctx ends.
func (c *container) repeat(ctx context.Context, probe *corev1.Probe, decided func(ok bool) bool) {
	if !sleep(ctx, time.Duration(probe.InitialDelaySeconds)*time.Second) {
		return
	}
	ticker := time.NewTicker(time.Duration(max(probe.PeriodSeconds, 1)) * time.Second)
	defer ticker.Stop()
	var last bool
	var same int32
	for {
		err := c.probe(ctx, probe)
		if ctx.Err() != nil {
			return
		}
		if ok := err == nil; ok == last {
			same++
		} else {
			last, same = ok, 1
		}
		threshold := max(probe.FailureThreshold, 1)
		if last {
			threshold = max(probe.SuccessThreshold, 1)
		}
		if same >= threshold && !decided(last) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// probe asks once.
func (c *container) probe(ctx context.Context, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		return c.httpGet(ctx, probe.HTTPGet)
	case probe.TCPSocket != nil:
		address, err := c.address(probe.TCPSocket.Host, probe.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	case probe.Exec != nil:
		return c.exec(ctx, probe.Exec.Command)
	default:
		return errors.New("the kind of the probe is unknown to this node")
	}
}

// hook runs a hook of the container's life and waits for its end.
func (c *container) hook(ctx context.Context, handler *corev1.LifecycleHandler) error {
	switch {
	case handler.HTTPGet != nil:
		return c.httpGet(ctx, handler.HTTPGet)
	case handler.Exec != nil:
		return c.exec(ctx, handler.Exec.Command)
	case handler.Sleep != nil:
		if !sleep(ctx, time.Duration(handler.Sleep.Seconds)*time.Second) {
			return context.Cause(ctx)
		}
		return nil
	default:
		return errors.New("the kind of the hook is unknown to this node")
	}
}

// httpGet asks once over a new connection and, like kubelet, trusts any certificate.
func (c *container) httpGet(ctx context.Context, get *corev1.HTTPGetAction) error {
	address, err := c.address(get.Host, get.Port)
	if err != nil {
		return err
	}
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/"+strings.TrimPrefix(get.Path, "/"), nil)
	if err != nil {
		return err
	}
	for _, header := range get.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxTerminationMessage))
	if err != nil {
		return err
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s: %s", request.URL, answer.Status, body)
	}
	return nil
}

// address resolves a host and a port number or name of a handler.
func (c *container) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = c.pod.ip
	}
	if port.Type == intstr.Int {
		return net.JoinHostPort(host, strconv.Itoa(port.IntValue())), nil
	}
	for _, named := range c.spec.Ports {
		if named.Name == port.StrVal {
			return net.JoinHostPort(host, strconv.Itoa(int(named.ContainerPort))), nil
		}
	}
	return "", fmt.Errorf("container %s has no port named %s", c.spec.Name, port.StrVal)
}

// exec runs a command inside the container and waits for its end.
func (c *container) exec(ctx context.Context, command []string) error {
	process, err := c.launch(command, c.logFile, false)
	if err != nil {
		return err
	}
	select {
	case <-process.done:
	case <-ctx.Done():
		process.kill()
		<-process.done
		return context.Cause(ctx)
	}
	if code := process.end().code; code != 0 {
		return fmt.Errorf("%s ended with exit code %d", strings.Join(command, " "), code)
	}
	return nil
}

// terminationMessage is what the container left in its message file, else the
// end of its log if it asks for that.
func (c *container) terminationMessage(code int32) string {
	path := strings.TrimPrefix(c.spec.TerminationMessagePath, "/")
	root, err := os.OpenRoot(c.pod.root)
	if err != nil {
		return ""
	}
	defer root.Close() //nolint:errcheck // opened for reading
	message, err := root.ReadFile(path)
	if err == nil && len(message) > 0 {
		return string(message[:min(len(message), maxTerminationMessage)])
	}
	if code == 0 || c.spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return ""
	}
	log, err := os.ReadFile(c.logFile)
	if err != nil {
		return ""
	}
	return string(log[max(0, len(log)-maxTerminationLog):])
}

// makeMessageFile makes an empty message file that the container can write.
func (c *container) makeMessageFile() error {
	root, err := os.OpenRoot(c.pod.root)
	if err != nil {
		return fmt.Errorf("opening the root directory of a pod: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing is buffered
	path := strings.TrimPrefix(c.spec.TerminationMessagePath, "/")
	if path == "" {
		return nil
	}
	if err := root.WriteFile(path, nil, 0o666); err != nil {
		return fmt.Errorf("making the message file of container %s: %w", c.spec.Name, err)
	}
	return root.Chmod(path, 0o666)
}
