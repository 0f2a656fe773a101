// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"time"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// quickCheck is how long reading the copy back may take for it to be done behind the fence.
const quickCheck = 1500 * time.Millisecond

// verify compares annex's data with what was read from the host, fence held. A
// copy that is too large to be read back in that time was read back just before
// the fence, and what was imported since then was compared batch by batch.
func (r *Reconciler) verify(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	s := r.sessions.get(group)
	if s == nil || !s.complete || s.fence == nil {
		return next(kubeannexv1alpha1.PhaseCatchingUp), r.lower(ctx, group)
	}
	if err := r.fenceStands(ctx, group, s); err != nil {
		return r.fenceFailed(ctx, group, s, err)
	}
	if !s.checked || s.checkedTook < quickCheck {
		watch := r.newStopwatch()
		defer func() { watch.lap(ctx, "Read the copy back") }()
		checkCtx, cancel := r.fenceContext(ctx, s)
		defer cancel()
		if err := r.checkContent(checkCtx, group.Name, s); err != nil {
			if !errors.Is(err, errDifferent) {
				return r.fenceFailed(ctx, group, s, err)
			}
			if err := r.lower(ctx, group); err != nil {
				return outcome{}, err
			}
			return r.startOver(group, err)
		}
	}
	for _, res := range s.resources {
		l, entry := s.ledgers[res.plural], resourceStatus(group, res.plural)
		s.show(group, res.plural)
		entry.Verified = l.content.Objects
		entry.Digest, entry.HostDigest = l.content.String(), l.identity.String()
	}
	return next(kubeannexv1alpha1.PhaseCuttingOver), nil
}
