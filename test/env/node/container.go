// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// firstBackoff is the pause before a container that ended starts again; it
	// doubles up to lastBackoff. Kubelet begins with ten seconds.
	firstBackoff = time.Second
	lastBackoff  = 10 * time.Second
	// minimumGrace is left for SIGTERM when preStop took the whole grace period.
	minimumGrace = 2 * time.Second
)

// container is one container of a pod over all its restarts.
type container struct {
	pod     *pod
	spec    *corev1.Container
	logFile string

	mu       sync.Mutex
	state    corev1.ContainerState
	previous corev1.ContainerState
	restarts int32
	// started and ready are what the probes say.
	started, ready bool
	process        *process
}

func newContainer(p *pod, spec *corev1.Container) *container {
	return &container{
		pod: p, spec: spec.DeepCopy(),
		logFile: filepath.Join(p.node.dirs.logs, logName(p.live.Namespace, p.live.Name, spec.Name)),
		state:   corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}},
	}
}

// change alters the state that is reported.
func (c *container) change(alter func()) {
	c.mu.Lock()
	alter()
	c.mu.Unlock()
	c.pod.reporter.poke()
}

// runToSuccess runs an init container, again after a failure if the pod says so.
func (c *container) runToSuccess(ctx context.Context) bool {
	if c.spec.RestartPolicy != nil {
		c.refuse(fmt.Errorf("init container %s: restartPolicy of a container is not supported by this node", c.spec.Name))
		return false
	}
	backoff := firstBackoff
	for {
		succeeded := c.runOnce(ctx)
		if succeeded {
			return true
		}
		if c.pod.object().Spec.RestartPolicy == corev1.RestartPolicyNever || !c.backOff(ctx, &backoff) {
			return false
		}
	}
}

// loop runs a main container until it has ended for good.
func (c *container) loop(ctx context.Context) {
	backoff := firstBackoff
	for {
		begin := time.Now()
		succeeded := c.runOnce(ctx)
		policy := c.pod.object().Spec.RestartPolicy
		if policy == corev1.RestartPolicyNever || (succeeded && policy == corev1.RestartPolicyOnFailure) {
			return
		}
		if time.Since(begin) > 10*lastBackoff {
			backoff = firstBackoff
		}
		if !c.backOff(ctx, &backoff) {
			return
		}
	}
}

// backOff waits before a restart; false when the pod ends.
func (c *container) backOff(ctx context.Context, backoff *time.Duration) bool {
	if ctx.Err() != nil || closed(c.pod.stopping) {
		return false
	}
	c.change(func() {
		if c.state.Terminated == nil {
			return // it never ran and says why
		}
		c.previous = c.state
		c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off %s restarting the container", *backoff),
		}}
	})
	timer := time.NewTimer(*backoff)
	defer timer.Stop()
	*backoff = min(*backoff*2, lastBackoff)
	select {
	case <-ctx.Done():
		return false
	case <-c.pod.stopping:
		// The end is reported instead of the wait.
		c.change(func() {
			if c.previous.Terminated != nil {
				c.state, c.previous = c.previous, corev1.ContainerState{}
			}
		})
		return false
	case <-timer.C:
	}
	c.change(func() {
		if c.previous.Terminated != nil {
			c.restarts++
		}
	})
	return true
}

// refuse reports that the container cannot run.
func (c *container) refuse(err error) {
	c.change(func() {
		c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CreateContainerConfigError", Message: err.Error(),
		}}
	})
}

// runOnce starts the process, probes it and waits for its end. It returns
// whether the process ended with exit code 0.
func (c *container) runOnce(ctx context.Context) bool {
	process, err := c.start()
	if err != nil {
		c.refuse(err)
		return false
	}
	begin := metav1.Now()
	c.change(func() {
		c.process = process
		c.started = c.spec.StartupProbe == nil
		c.ready = c.started && c.spec.ReadinessProbe == nil
		c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: begin}}
	})
	probes, cancel := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { c.afterStart(probes) })
	watchers.Go(func() {
		select {
		case <-c.pod.stopping:
			c.terminate(ctx, c.pod.grace())
		case <-probes.Done():
		}
	})
	select {
	case <-process.done:
	case <-ctx.Done():
		process.kill()
		<-process.done
	}
	cancel()
	watchers.Wait()
	end := process.end()
	message := c.terminationMessage(end.code)
	c.change(func() {
		c.process, c.started, c.ready = nil, false, false
		c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: end.code, Signal: end.signal, Reason: end.reason(), Message: message,
			StartedAt: begin, FinishedAt: metav1.Now(), ContainerID: process.id(),
		}}
	})
	return end.code == 0
}

// start makes the process from the live Pod.
func (c *container) start() (*process, error) {
	if err := c.makeMessageFile(); err != nil {
		return nil, err
	}
	command := slices.Concat(c.spec.Command, c.spec.Args)
	return c.launch(command, c.logFile, true)
}

// launch starts a command in the container.
func (c *container) launch(command []string, logFile string, expandVariables bool) (*process, error) {
	live := c.pod.object()
	variables, err := c.environment(live)
	if err != nil {
		return nil, err
	}
	if len(command) == 0 {
		return nil, fmt.Errorf("container %s has no command, and the image has no entrypoint", c.spec.Name)
	}
	if expandVariables {
		for i := range command {
			command[i] = expand(command[i], variables)
		}
	}
	user, err := containerUser(live, c.spec)
	if err != nil {
		return nil, err
	}
	return startProcess(processSpec{
		root: c.pod.root, dir: c.spec.WorkingDir, command: command,
		environment: c.processEnvironment(live, variables), user: user, logFile: logFile,
	})
}

// afterStart runs the postStart hook and then the probes until ctx ends.
func (c *container) afterStart(ctx context.Context) {
	if c.spec.Lifecycle != nil && c.spec.Lifecycle.PostStart != nil {
		if err := c.hook(ctx, c.spec.Lifecycle.PostStart); err != nil && ctx.Err() == nil {
			c.pod.event(ctx, "FailedPostStartHook", err.Error())
			c.terminate(ctx, c.pod.grace())
			return
		}
	}
	c.runProbes(ctx)
}

// current returns the running process or nil.
func (c *container) current() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

// terminate ends the running process: preStop, SIGTERM, and SIGKILL after the
// grace period, of which preStop is a part.
func (c *container) terminate(ctx context.Context, grace time.Duration) {
	process := c.current()
	if process == nil {
		return
	}
	if !process.ending.CompareAndSwap(false, true) {
		<-process.done
		return
	}
	deadline := time.Now().Add(grace)
	if c.spec.Lifecycle != nil && c.spec.Lifecycle.PreStop != nil {
		hookCtx, cancel := context.WithDeadline(ctx, deadline)
		err := c.hook(hookCtx, c.spec.Lifecycle.PreStop)
		cancel()
		if err != nil && ctx.Err() == nil {
			c.pod.event(ctx, "FailedPreStopHook", err.Error())
		}
	}
	process.terminate()
	timer := time.NewTimer(max(time.Until(deadline), minimumGrace))
	defer timer.Stop()
	select {
	case <-process.done:
		return
	case <-ctx.Done():
	case <-timer.C:
		c.pod.event(ctx, "ExceededGracePeriod", fmt.Sprintf("container %s did not end within %s", c.spec.Name, grace))
	}
	process.kill()
	<-process.done
}
