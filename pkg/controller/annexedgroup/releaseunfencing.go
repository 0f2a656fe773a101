// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// releaseUnfence removes annex's data and definitions of a group that the cluster
// serves again, and lets the AnnexedGroup go. Annex answers with 410 until then.
func (r *Reconciler) releaseUnfence(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	if err := r.guardDefinitions(ctx); err != nil {
		return outcome{}, err
	}
	mirrored, err := r.hasMirrors(ctx, group.Name)
	if err != nil {
		return outcome{}, err
	}
	if !mirrored {
		r.releases.drop(group.Name)
		r.sessions.drop(group.Name)
		return outcome{}, r.removeReleaseFinalizer(ctx, group)
	}
	return r.clearAnnex(ctx, group.Name)
}
