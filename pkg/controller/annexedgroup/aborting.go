// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// abort undoes an adoption before cut-over. Of the host it touches the fence only.
func (r *Reconciler) abort(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	if err := r.lower(ctx, group); err != nil {
		return outcome{}, err
	}
	r.sessions.drop(group.Name)
	// The guard goes by what is stored.
	if err := r.writeStatus(ctx, group); err != nil {
		return outcome{}, err
	}
	if err := r.guardDefinitions(ctx); err != nil {
		return outcome{}, err
	}
	mirrored, err := r.hasMirrors(ctx, group.Name)
	if err != nil {
		return outcome{}, err
	}
	if mirrored {
		resources, err := r.hostResources(ctx, group.Name)
		if err != nil {
			return outcome{}, err
		}
		if result, resumed, err := r.resumeServed(ctx, group, resources); err != nil || resumed {
			return result, err // there is nothing to undo: the way back is a release
		}
		// Before the gate closes: clients may be working with it.
		if err := r.mustNotRoute(ctx, group.Name); err != nil {
			return outcome{}, err
		}
		if err := r.serve(ctx, group, kubeannexv1alpha1.ServingClosed); err != nil {
			return outcome{}, err
		}
		return r.clearAnnex(ctx, group.Name)
	}
	if group.DeletionTimestamp != nil {
		r.Recorder.Eventf(group, nil, "Normal", "Aborted", "Abort", "The adoption was undone, the cluster serves the group as before")
		return next(kubeannexv1alpha1.PhaseAborted), r.removeReleaseFinalizer(ctx, group)
	}
	setCondition(group, kubeannexv1alpha1.ConditionAnnexed, metav1.ConditionFalse, "Aborted", "The adoption was undone, the cluster serves the group as before")
	return next(kubeannexv1alpha1.PhaseAborted), nil
}

// aborted waits until somebody changes the spec: then the adoption begins anew.
func (r *Reconciler) aborted(_ context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	if group.Status.ObservedGeneration != group.Generation {
		return next(kubeannexv1alpha1.PhasePending), nil
	}
	return outcome{}, nil
}
