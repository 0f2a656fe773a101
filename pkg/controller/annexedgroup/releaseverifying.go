// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// releaseVerify compares both sides, writes held back. After it the release goes forward only.
func (r *Reconciler) releaseVerify(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	s := r.releases.get(group)
	if s == nil || s.fenced.IsZero() || group.Status.Serving != kubeannexv1alpha1.ServingReadOnly {
		return r.releaseBack(ctx, group, nil)
	}
	err := r.verifyCopies(ctx, group, s)
	if err == nil && r.Clock.Since(s.fenced) > s.releaseFenceLimit() {
		err = errReleaseFenceTooOld
	}
	if err != nil {
		for _, c := range s.copies {
			c.loaded, c.compared = false, false
			clear(c.sources)
		}
		return r.releaseBack(ctx, group, err)
	}
	return next(kubeannexv1alpha1.PhaseReleaseCuttingOver), nil
}
