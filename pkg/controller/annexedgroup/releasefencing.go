// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

const (
	// maxReleaseFence is how long writes may be held back at first until the cut-over
	// begins. client-go gives up after ten answers with 429, one a second, and the
	// cut-over itself takes about five seconds.
	maxReleaseFence = 4 * time.Second
	// releaseRetry is the pause after the first setback, it grows by itself up to maxReleaseRetry.
	releaseRetry    = 2 * time.Second
	maxReleaseRetry = 30 * time.Second
)

// errReleaseFenceTooOld says that writers have waited long enough.
var errReleaseFenceTooOld = errors.New("the last differences could not be written back in time")

// releaseFence holds writes back at annex and writes the last differences.
func (r *Reconciler) releaseFence(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	s := r.releases.get(group)
	if s == nil {
		return r.releaseBack(ctx, group, nil)
	}
	if s.fenced.IsZero() {
		s.fenced = r.Clock.Now()
	}
	if err := r.drainAnnex(ctx, group, s); err != nil {
		return r.releaseBack(ctx, group, err)
	}
	return next(kubeannexv1alpha1.PhaseReleaseVerifying), nil
}

// drainAnnex repeats rounds until one finds nothing. Replicas report that they
// hold writes back when the last one that they let pass is over (pkg/serving).
func (r *Reconciler) drainAnnex(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *releaseSession) error {
	if err := r.serve(ctx, group, kubeannexv1alpha1.ServingReadOnly); err != nil {
		return err
	}
	for {
		if r.Clock.Since(s.fenced) > s.releaseFenceLimit() {
			return errReleaseFenceTooOld
		}
		differences, err := r.releaseRound(ctx, group, s)
		if err != nil || differences == 0 {
			return err
		}
	}
}

// errCopiesDiffer says that somebody else wrote.
var errCopiesDiffer = errors.New("the cluster's copies are not what was written to them: look for a controller or webhook that uses version " + kubeannexv1alpha1.PrivateVersion)

// verifyCopies compares names, UIDs and revisions of all copies with what was
// read or written. Their contents were compared then, and a revision stands for a
// content. Annex's side was compared by the round that found nothing, and has not
// changed since: writes are held back.
func (r *Reconciler) verifyCopies(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *releaseSession) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(parallelLists)
	for _, c := range s.copies {
		tasks.Go(func() error { return r.verifyResource(ctx, c) })
	}
	if err := tasks.Wait(); err != nil {
		return err
	}
	for _, c := range s.copies {
		entry, objects := resourceStatus(group, c.resource.plural), int64(len(c.sources))
		entry.Objects, entry.Copied, entry.Verified = objects, objects, objects
	}
	return nil
}

func (r *Reconciler) verifyResource(ctx context.Context, c *releaseCopies) error {
	copies, wrong := 0, 0
	err := eachMetadata(ctx, r.Connections.Host, c.resource.private(), func(items []metav1.PartialObjectMetadata) {
		for i := range items {
			copies++
			known, ok := c.copies[keyOf(&items[i])]
			if _, settled := c.sources[keyOf(&items[i])]; !ok || !settled || known.uid != items[i].UID || known.version != items[i].ResourceVersion {
				wrong++
			}
		}
	})
	if err != nil {
		return err
	}
	if wrong > 0 || copies != len(c.sources) {
		return fmt.Errorf("%d of %d %s differ: %w", max(wrong, 1), len(c.sources), c.resource.plural, errCopiesDiffer)
	}
	return nil
}

// releaseFenceLimit is how long writes may be held back now. A group that is too
// large for the first limit gets more time with every setback, at the price of
// clients that give up.
func (s *releaseSession) releaseFenceLimit() time.Duration {
	return min(time.Duration(s.setbacks+1)*maxReleaseFence, maxReleaseRetry)
}
