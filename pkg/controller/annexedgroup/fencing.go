// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/fence"
)

const (
	// maxFence is how long a fence may hold before the first APIService is changed.
	// client-go gives up after ten answers with Retry-After 1.
	maxFence = 8 * time.Second
	// maxConfirm is how long every kube-apiserver may take to know the fence. It
	// takes less than a second; a kube-apiserver that has just died takes for ever.
	maxConfirm = 4 * time.Second
	// straggling is for writes that had passed the admission of kube-apiserver
	// when the fence came up and reach etcd after it.
	straggling = 300 * time.Millisecond
	// shortestSetback and longestSetback are the pauses after a fence that had to be lifted.
	shortestSetback = 5 * time.Second
	longestSetback  = 5 * time.Minute
)

// errFenceTooOld says that the fence has to be lifted, because it held writes
// back long enough or waiting would not help.
var errFenceTooOld = errors.New("the fence could not be kept up")

// fences are the fences of the host.
func (r *Reconciler) fences() *fence.Fences {
	return &fence.Fences{Client: r.Connections.Host.Kube, Webhook: r.Connections.WebhookClient(), Namespace: r.Connections.Namespace}
}

// fence holds writes back on every kube-apiserver and copies the last changes.
func (r *Reconciler) fence(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	s := r.sessions.get(group)
	if s == nil || !s.complete || !s.checked {
		return next(kubeannexv1alpha1.PhaseCatchingUp), r.lower(ctx, group)
	}
	raised, err := r.fences().Raise(ctx, group.Name, r.Clock.Now())
	if err != nil {
		return outcome{}, err
	}
	s.fence = raised
	r.sessions.raised(*raised)
	if err := r.behindFence(ctx, group, s); err != nil {
		return r.fenceFailed(ctx, group, s, err)
	}
	return next(kubeannexv1alpha1.PhaseVerifying), nil
}

func (r *Reconciler) behindFence(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *session) error {
	ctx, cancel := r.fenceContext(ctx, s)
	defer cancel()
	watch := r.newStopwatch()
	if err := r.confirmFence(ctx, group.Name); err != nil {
		return fmt.Errorf("%w: %w", errFenceTooOld, err)
	}
	watch.lap(ctx, "The fence holds on every kube-apiserver")
	present, err := r.hostResources(ctx, group.Name)
	if err != nil {
		return err
	}
	if changes := changedSince(s, present); changes != "" {
		return fmt.Errorf("%w: definitions changed: %s", errFenceTooOld, changes)
	}
	return r.drain(ctx, group, s)
}

// fenceContext ends when the fence is too old.
func (r *Reconciler) fenceContext(ctx context.Context, s *session) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.fence.Since.Add(maxFence).Sub(r.Clock.Now()), errFenceTooOld)
}

// confirmFence waits until every kube-apiserver refuses writes.
func (r *Reconciler) confirmFence(ctx context.Context, group string) error {
	err := r.await(ctx, maxConfirm, func(ctx context.Context) error {
		return r.onEveryHost(ctx, func(ctx context.Context, server hostEndpoint) error {
			return fence.Holds(ctx, server.Kube, r.Connections.Namespace, group)
		})
	})
	if err != nil {
		return fmt.Errorf("trying the fence: %w", err)
	}
	return nil
}

// drain runs rounds until nothing differs any more: twice, the second time late
// enough for writes that were on their way when the fence came up.
func (r *Reconciler) drain(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *session) error {
	watch := r.newStopwatch()
	confirmed := watch.last
	for clean := 0; clean < 2; {
		begin := r.Clock.Now()
		differences, err := r.round(ctx, group, s)
		if err != nil {
			return err
		}
		watch.lap(ctx, "Compared behind the fence", "differences", differences)
		switch {
		case differences > 0:
			clean = 0
			continue
		case begin.Sub(confirmed) >= straggling:
			return nil
		}
		if clean++; clean == 1 {
			r.pause(ctx, straggling-r.Clock.Since(confirmed))
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) pause(ctx context.Context, duration time.Duration) {
	if duration <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-r.Clock.After(duration):
	}
}

// fenceFailed lifts a fence that is too old, and otherwise lets the step be
// tried again behind it.
func (r *Reconciler) fenceFailed(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *session, cause error) (outcome, error) {
	if errors.Is(cause, errTurnBack) {
		return outcome{}, cause
	}
	if r.Clock.Since(s.fence.Since) < maxFence && !errors.Is(cause, errFenceTooOld) {
		return outcome{}, cause
	}
	return r.setback(ctx, group, cause)
}

// setback lifts the fence and lets the group catch up again, later each time.
func (r *Reconciler) setback(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, cause error) (outcome, error) {
	if err := r.lower(ctx, group); err != nil {
		return outcome{}, err
	}
	wait := shortestSetback
	if s := r.sessions.get(group); s != nil {
		wait = min(shortestSetback<<min(s.setbacks, 10), longestSetback)
		s.setbacks++
		s.notBefore = r.Clock.Now().Add(wait)
	}
	r.Recorder.Eventf(group, nil, "Warning", "FenceLifted", "Fence", "The fence was lifted before the group was moved, the next try is in %s: %s", wait, oneLine(cause))
	return outcome{phase: kubeannexv1alpha1.PhaseCatchingUp, after: wait}, nil
}

// lower takes the fence of the group down, if there is one, and notes how long it held.
func (r *Reconciler) lower(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) error {
	r.sessions.flip.Lock()
	defer r.sessions.flip.Unlock()
	present, err := r.fences().Get(ctx, group.Name)
	if err != nil {
		return err
	}
	if present == nil {
		r.sessions.lowered(group.Name)
		return nil
	}
	s := r.sessions.get(group)
	if s != nil && s.fence != nil && s.fence.UID != present.UID && group.Status.Phase != kubeannexv1alpha1.PhaseUnfencing {
		// It belongs to a process that has taken over in the meantime. KeepFences lifts one that nobody takes care of.
		r.sessions.lowered(group.Name)
		s.fence = nil
		return nil
	}
	if err := r.mustLead(ctx); err != nil {
		return err
	}
	if err := r.fences().Lower(ctx, present); err != nil {
		return err
	}
	r.sessions.lowered(group.Name)
	group.Status.FenceDuration = &metav1.Duration{Duration: max(r.Clock.Since(present.Since), 0).Round(time.Millisecond)}
	if s != nil {
		s.fence = nil
	}
	return nil
}

// fenceStands fails when the fence that the session is behind is gone or too old.
func (r *Reconciler) fenceStands(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *session) error {
	present, err := r.fences().Get(ctx, group.Name)
	if err != nil {
		return err
	}
	if present == nil || present.UID != s.fence.UID {
		return fmt.Errorf("%w: it was removed", errFenceTooOld)
	}
	if r.Clock.Since(present.Since) > maxFence {
		return errFenceTooOld
	}
	return nil
}
