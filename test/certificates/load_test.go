// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeannex/annex/pkg/controller/certificates"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// pause is that of each client between two requests.
const pause = 20 * time.Millisecond

// load are clients that work all the time. None of their requests may fail.
type load struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
	done   atomic.Int64

	mu       sync.Mutex
	failures []string
}

// begin starts clients of a group that annex serves: at each kube-apiserver one
// that writes and reads, and one whose writes a webhook of the controller is asked
// about; and one at each process that verifies it anew with every request.
func begin(t *testing.T, group *scenario.Group) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	t.Cleanup(l.end)
	for i := range suite.cluster.Host.APIServers {
		l.run(ctx, fmt.Sprintf("objects at kube-apiserver %d", i), writeAndRead(t, group, i))
		l.run(ctx, fmt.Sprintf("definitions at kube-apiserver %d", i), annotateDefinition(t, group, i))
	}
	pool := &pools{}
	for _, replica := range suite.cluster.Annex.Replicas {
		l.run(ctx, "handshakes with annex", pool.handshake(replica.URL))
	}
	return l
}

func (l *load) run(ctx context.Context, name string, request func(context.Context) error) {
	l.wait.Go(func() {
		for ctx.Err() == nil {
			if err := request(ctx); err != nil && ctx.Err() == nil {
				l.mu.Lock()
				l.failures = append(l.failures, fmt.Sprintf("%s %s: %v", time.Now().Format("15:04:05.000"), name, err))
				l.mu.Unlock()
			}
			l.done.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

// end stops the clients. It may be called twice.
func (l *load) end() {
	l.cancel()
	l.wait.Wait()
}

// mustDoMore waits until the clients have done more.
func (l *load) mustDoMore(t *testing.T) {
	t.Helper()
	counted := l.done.Load()
	err := scenario.Poll(scenario.Context(t), func(context.Context) error {
		if l.done.Load() < counted+200 {
			return errors.New("the clients do not work")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mustNotHaveFailed ends the load.
func (l *load) mustNotHaveFailed(t *testing.T) {
	t.Helper()
	l.end()
	t.Logf("%d requests", l.done.Load())
	if len(l.failures) > 0 {
		t.Errorf("%d requests failed, the first: %s", len(l.failures), strings.Join(l.failures[:min(5, len(l.failures))], "\n"))
	}
}

func writeAndRead(t *testing.T, group *scenario.Group, server int) func(context.Context) error {
	t.Helper()
	client := group.Client(t, suite.cluster.HostConfig(t, server), group.Planets())
	count := 0
	return func(ctx context.Context) error {
		count++
		planet := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group.Planets().GroupVersion().String(), "kind": "Planet",
			"metadata": map[string]any{"name": fmt.Sprintf("load-%d-%d", server, count)},
			"spec":     map[string]any{"star": "sun"},
		}}
		if _, err := client.Create(ctx, planet, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := client.List(ctx, metav1.ListOptions{Limit: 5}); err != nil {
			return err
		}
		return client.Delete(ctx, planet.GetName(), metav1.DeleteOptions{})
	}
}

// annotateDefinition changes nothing: it is a dry run.
func annotateDefinition(t *testing.T, group *scenario.Group, server int) func(context.Context) error {
	t.Helper()
	client, err := apiextensionsclient.NewForConfig(suite.cluster.HostConfig(t, server))
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) error {
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, "planets."+group.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"load":"`+time.Now().Format(time.RFC3339Nano)+`"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

// pools is a client that knows the bundle as late as a pod would.
type pools struct {
	mu   sync.Mutex
	read time.Time
	pool *x509.CertPool
}

func (p *pools) current(ctx context.Context) (*x509.CertPool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pool != nil && time.Since(p.read) < mountDelay {
		return p.pool, nil
	}
	bundle, err := suite.kube.CoreV1().ConfigMaps(env.AnnexNamespace).Get(ctx, certificates.BundleConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(bundle.Data["ca.crt"])) {
		return nil, errors.New("the bundle holds no certificate")
	}
	p.read, p.pool = time.Now(), pool
	return pool, nil
}

func (p *pools) handshake(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		pool, err := p.current(ctx)
		if err != nil {
			return err
		}
		dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "annex." + env.AnnexNamespace + ".svc"}}
		connection, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(url, "https://"))
		if err != nil {
			return err
		}
		return connection.Close()
	}
}
