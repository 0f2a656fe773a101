// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// unfence opens the group: first every replica of annex, then the fence, which
// annex obeys as the host does.
func (r *Reconciler) unfence(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	if err := r.serve(ctx, group, kubeannexv1alpha1.ServingOpen); err != nil {
		return outcome{}, err
	}
	if err := r.lower(ctx, group); err != nil {
		return outcome{}, err
	}
	// What follows can take seconds with definitions of a megabyte: writers need not wait for it.
	if err := r.mustBeAnnexed(ctx, group.Name); err != nil {
		return outcome{}, err
	}
	mirrors, err := listDefinitions(ctx, r.Connections.Annex, group.Name)
	if err != nil {
		return outcome{}, err
	}
	if err := r.markServed(ctx, mirrors); err != nil {
		return outcome{}, err
	}
	// Watches of before the cut-over, silent until now, end with the change.
	if err := r.touchDefinitions(ctx, group.Name); err != nil {
		return outcome{}, err
	}
	return next(kubeannexv1alpha1.PhaseAnnexed), nil
}
