// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package annexedgroup moves API groups into annex and back. Reconcile is a
// shell over one step for each phase of an AnnexedGroup; every file named after
// a phase holds its step. A step is idempotent: it may be interrupted anywhere,
// by the end of any process, and is then run again from its beginning.
package annexedgroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// Reconciler reconciles AnnexedGroups, one at a time for each group.
type Reconciler struct {
	// Connections are the two servers.
	Connections cluster.Connections
	// Recorder tells what happened, for users.
	Recorder events.EventRecorder
	// Clock is the real one outside tests.
	Clock clock.Clock
	// Leading says whether no other process has taken over. Nil means that there is none.
	Leading func(context.Context) (bool, error)
	// HostRequestTimeout is how long a request lives at most that is under way in a kube-apiserver.
	HostRequestTimeout time.Duration
	// Dependents are all that objects of groups can own, besides objects of the same
	// group. Group and resource may be "*". None means everything in the cluster.
	Dependents []schema.GroupResource
	// Metrics are told what happens. Nil counts nothing.
	Metrics *Metrics

	sessions sessions
	releases releases
	known    knownStatuses
}

// outcome is what a step leaves behind.
type outcome struct {
	// phase is the next one. Empty means that this one goes on.
	phase kubeannexv1alpha1.AnnexedGroupPhase
	// after is when to look again if nothing changes before. Zero with a next phase means at once.
	after time.Duration
}

// next ends a step.
func next(phase kubeannexv1alpha1.AnnexedGroupPhase) outcome { return outcome{phase: phase} }

// again keeps the phase and looks again later.
func again(after time.Duration) outcome { return outcome{after: after} }

// refusalPause is when a step is tried again that only a user can mend. A change
// of the object comes first.
const refusalPause = 30 * time.Second

// step does the work of one phase. It may change the status of the group that
// it is given, nothing else of it. An error is shown in the condition
// Progressing and the step is tried again, with growing delays.
type step func(context.Context, *kubeannexv1alpha1.AnnexedGroup) (outcome, error)

// steps returns the step of every phase.
func (r *Reconciler) steps() map[kubeannexv1alpha1.AnnexedGroupPhase]step {
	return map[kubeannexv1alpha1.AnnexedGroupPhase]step{
		kubeannexv1alpha1.PhasePending:     r.pending,
		kubeannexv1alpha1.PhasePreflight:   r.preflight,
		kubeannexv1alpha1.PhaseMirroring:   r.mirror,
		kubeannexv1alpha1.PhaseCopying:     r.copy,
		kubeannexv1alpha1.PhaseCatchingUp:  r.catchUp,
		kubeannexv1alpha1.PhaseFencing:     r.fence,
		kubeannexv1alpha1.PhaseVerifying:   r.verify,
		kubeannexv1alpha1.PhaseCuttingOver: r.cutOver,
		kubeannexv1alpha1.PhaseUnfencing:   r.unfence,
		kubeannexv1alpha1.PhaseAnnexed:     r.annexed,
		kubeannexv1alpha1.PhaseAborting:    r.abort,
		kubeannexv1alpha1.PhaseAborted:     r.aborted,

		kubeannexv1alpha1.PhaseReleasing:          r.release,
		kubeannexv1alpha1.PhaseReleaseFencing:     r.releaseFence,
		kubeannexv1alpha1.PhaseReleaseVerifying:   r.releaseVerify,
		kubeannexv1alpha1.PhaseReleaseCuttingOver: r.releaseCutOver,
		kubeannexv1alpha1.PhaseReleaseUnfencing:   r.releaseUnfence,
	}
}

// Reconcile runs the step of the present phase and writes the status once.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	// Where it is not known the steps ask again.
	if err := r.mustLead(ctx); errors.Is(err, errNotAlone) {
		return reconcile.Result{}, err
	}
	groups := r.Connections.Annex.Groups.KubeannexV1alpha1().AnnexedGroups()
	stored, err := groups.Get(ctx, request.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.sessions.drop(request.Name)
		r.releases.drop(request.Name)
		r.known.drop(request.Name)
		r.Metrics.gone(request.Name, r.Clock.Now())
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the AnnexedGroup: %w", err)
	}
	r.known.set(stored)
	group := stored.DeepCopy()
	step, known := r.steps()[direction(group)]
	if !known {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("phase %q is unknown: run the controller of the release that wrote it", group.Status.Phase))
	}
	result, stepErr := step(ctx, group)
	if errors.Is(stepErr, errNotAlone) {
		return reconcile.Result{}, stepErr // the status is the other's
	}
	r.conclude(group, stored, result, stepErr)
	r.Metrics.observe(stored, group, r.Clock.Now())
	// A step that wrote in between may have come back to what was stored at its beginning.
	if stored.ResourceVersion != group.ResourceVersion || !apiequality.Semantic.DeepEqual(stored.Status, group.Status) {
		_, err := groups.UpdateStatus(ctx, group, metav1.UpdateOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			// Somebody else wrote, or the last finalizer went: look again at what is there now.
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil
		case err != nil:
			return reconcile.Result{}, fmt.Errorf("writing the status: %w", err)
		}
	}
	if waitsForUser(stepErr) {
		return reconcile.Result{RequeueAfter: refusalPause}, nil
	}
	if stepErr != nil {
		return reconcile.Result{}, stepErr
	}
	if result.phase != "" && result.after == 0 {
		result.after = time.Millisecond
	}
	return reconcile.Result{RequeueAfter: result.after}, nil
}

// waitsForUser says that trying again soon would not help.
func waitsForUser(err error) bool {
	for _, cause := range []error{errNewUIDs, errStrayWrites, errOrphans, errRouted, errRestored, errMayNotSearch, errNoSuchKind} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// mustLead fails in a process that was paused and replaced. It is asked before a
// step, and again right before what could harm the work of the new leader.
func (r *Reconciler) mustLead(ctx context.Context) error {
	if r.Leading == nil {
		return nil
	}
	leads, err := r.Leading(ctx)
	if err == nil && !leads {
		err = errNotAlone
	}
	return err
}

// direction is the phase whose step is due: a group that is being deleted turns
// back where that leaves no trace, and otherwise goes on until it can be released.
func direction(group *kubeannexv1alpha1.AnnexedGroup) kubeannexv1alpha1.AnnexedGroupPhase {
	phase := group.Status.Phase
	if group.DeletionTimestamp == nil {
		return phase
	}
	switch phase {
	case kubeannexv1alpha1.PhasePending, kubeannexv1alpha1.PhasePreflight, kubeannexv1alpha1.PhaseMirroring,
		kubeannexv1alpha1.PhaseCopying, kubeannexv1alpha1.PhaseCatchingUp, kubeannexv1alpha1.PhaseFencing,
		kubeannexv1alpha1.PhaseVerifying, kubeannexv1alpha1.PhaseAborted:
		group.Status.Phase = kubeannexv1alpha1.PhaseAborting
	case kubeannexv1alpha1.PhaseAnnexed:
		group.Status.Phase = kubeannexv1alpha1.PhaseReleasing
	}
	return group.Status.Phase
}

// conclude writes the outcome of a step into the status and tells of a new phase.
func (r *Reconciler) conclude(group, stored *kubeannexv1alpha1.AnnexedGroup, result outcome, err error) {
	group.Status.ObservedGeneration = group.Generation
	if result.phase != "" {
		group.Status.Phase = result.phase
	}
	r.setProgressing(group, err)
	if group.Status.Phase != stored.Status.Phase {
		r.Recorder.Eventf(group, nil, "Normal", string(group.Status.Phase), "Reconcile", "The group is now in phase %s", group.Status.Phase)
	}
}
