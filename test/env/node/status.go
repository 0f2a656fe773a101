// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reporter writes the status of one pod.
type reporter struct {
	pod   *pod
	dirty chan struct{}
	start metav1.Time

	mu         sync.Mutex
	sent       string
	conditions []corev1.PodCondition
}

func newReporter(p *pod) *reporter {
	return &reporter{pod: p, dirty: make(chan struct{}, 1), start: metav1.Now()}
}

// poke makes the reporter look for something new.
func (r *reporter) poke() {
	select {
	case r.dirty <- struct{}{}:
	default:
	}
}

func (r *reporter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.dirty:
		}
		if err := r.report(ctx); err != nil {
			if apierrors.IsNotFound(err) || !sleep(ctx, retryInterval) {
				return
			}
			r.poke()
		}
	}
}

// last reports the end; it returns once the API has it or cannot have it.
func (r *reporter) last(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.report(ctx)
		if err == nil || apierrors.IsNotFound(err) || !sleep(ctx, retryInterval) {
			return
		}
	}
}

func (r *reporter) report(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := r.pod.object()
	status := r.status(live)
	content, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encoding the status of a pod: %w", err)
	}
	if string(content) == r.sent {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": live.UID},
		"status":   json.RawMessage(content),
	})
	if err != nil {
		return fmt.Errorf("encoding the status of a pod: %w", err)
	}
	if err := r.pod.patchStatus(ctx, patch); err != nil {
		return err
	}
	r.sent, r.conditions = string(content), status.Conditions
	return nil
}

// status is what kubelet would say now.
func (r *reporter) status(live *corev1.Pod) corev1.PodStatus {
	p := r.pod
	p.mu.Lock()
	reason, issue := p.reason, p.issue
	p.mu.Unlock()
	status := corev1.PodStatus{
		ObservedGeneration: live.Generation,
		HostIP:             nodeIP, HostIPs: []corev1.HostIP{{IP: nodeIP}},
		PodIP: p.ip, PodIPs: []corev1.PodIP{{IP: p.ip}},
		StartTime: &r.start,
	}
	status.InitContainerStatuses = statuses(p.inits, reason, issue)
	status.ContainerStatuses = statuses(p.mains, reason, issue)
	status.Phase = phase(live, status.InitContainerStatuses, status.ContainerStatuses)
	r.addConditions(live, &status)
	return status
}

func statuses(containers []*container, reason, issue string) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for _, c := range containers {
		all = append(all, c.status(reason, issue))
	}
	return all
}

func (c *container) status(reason, issue string) corev1.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	started := c.started
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image,
		State: *c.state.DeepCopy(), LastTerminationState: *c.previous.DeepCopy(),
		RestartCount: c.restarts, Ready: c.ready, Started: &started,
	}
	if status.State.Terminated != nil {
		status.ContainerID = status.State.Terminated.ContainerID
		// An init container that succeeded is ready.
		status.Ready = status.State.Terminated.ExitCode == 0 && slices.Contains(c.pod.inits, c)
	}
	if c.process != nil {
		status.ContainerID = c.process.id()
	}
	if waiting := status.State.Waiting; waiting != nil && reason != "" {
		waiting.Reason, waiting.Message = reason, issue
	}
	return status
}

// phase sums up the states of the containers.
func phase(live *corev1.Pod, inits, mains []corev1.ContainerStatus) corev1.PodPhase {
	ending := live.DeletionTimestamp != nil || live.Spec.RestartPolicy == corev1.RestartPolicyNever
	for i := range inits {
		end := inits[i].State.Terminated
		switch {
		case end != nil && end.ExitCode == 0:
		case end != nil && ending:
			return corev1.PodFailed
		default:
			return corev1.PodPending
		}
	}
	waiting, failed, succeeded := count(mains)
	all := failed+succeeded == len(mains)
	switch {
	case waiting > 0:
		return corev1.PodPending
	case all && failed > 0 && ending:
		return corev1.PodFailed
	case all && failed == 0 && (ending || live.Spec.RestartPolicy == corev1.RestartPolicyOnFailure):
		return corev1.PodSucceeded
	default:
		return corev1.PodRunning
	}
}

// count returns how many containers have never run, and how many have ended how.
func count(mains []corev1.ContainerStatus) (waiting, failed, succeeded int) {
	for i := range mains {
		switch state := mains[i].State; {
		case state.Waiting != nil && mains[i].LastTerminationState.Terminated == nil:
			waiting++
		case state.Terminated != nil && state.Terminated.ExitCode == 0:
			succeeded++
		case state.Terminated != nil:
			failed++
		}
	}
	return waiting, failed, succeeded
}

// addConditions adds the conditions of kubelet and keeps those of others.
func (r *reporter) addConditions(live *corev1.Pod, status *corev1.PodStatus) {
	initialized := !slices.ContainsFunc(status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return !s.Ready })
	ready := status.Phase == corev1.PodRunning &&
		!slices.ContainsFunc(status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return !s.Ready })
	own := []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: conditionStatus(initialized)},
		{Type: corev1.ContainersReady, Status: conditionStatus(ready)},
		{Type: corev1.PodReady, Status: conditionStatus(ready)},
	}
	for i := range own {
		own[i].ObservedGeneration = live.Generation
		own[i].LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
		if own[i].Status == corev1.ConditionFalse {
			own[i].Reason = "ContainersNotReady"
		}
		for _, before := range r.conditions {
			if before.Type == own[i].Type && before.Status == own[i].Status {
				own[i].LastTransitionTime = before.LastTransitionTime
			}
		}
	}
	for _, other := range live.Status.Conditions {
		if !slices.ContainsFunc(own, func(c corev1.PodCondition) bool { return c.Type == other.Type }) {
			own = append(own, other)
		}
	}
	status.Conditions = own
}

func conditionStatus(value bool) corev1.ConditionStatus {
	if value {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}
