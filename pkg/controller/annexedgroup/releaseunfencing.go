// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"time"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// releaseUnfence removes annex's data and definitions of a group that the cluster
// serves again, and lets the AnnexedGroup go. Annex answers with 410 until then.
func (r *Reconciler) releaseUnfence(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	if err := r.guardDefinitions(ctx); err != nil {
		return outcome{}, err
	}
	definitions, err := listDefinitions(ctx, r.Connections.Annex, group.Name)
	if err != nil {
		return outcome{}, err
	}
	mirrors := 0
	for i := range definitions {
		if isMirror(&definitions[i]) {
			mirrors++
		}
	}
	if mirrors == 0 {
		r.releases.drop(group.Name)
		r.sessions.drop(group.Name)
		return outcome{}, r.removeReleaseFinalizer(ctx, group)
	}
	if err := r.dropImported(ctx, group.Name); err != nil {
		return outcome{}, err
	}
	if err := r.removeMirrors(ctx, group.Name, nil); err != nil {
		return outcome{}, err
	}
	return again(200 * time.Millisecond), nil
}
