// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"

	"golang.org/x/sync/errgroup"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// pagesAhead is how many pages are read before the first of them is imported.
const pagesAhead = 2

// copy copies every object once. What changes meanwhile is for catchUp.
func (r *Reconciler) copy(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	if s := r.sessions.get(group); s != nil && s.complete {
		return next(kubeannexv1alpha1.PhaseCatchingUp), nil
	}
	// A controller that has forgotten everything may have left a fence.
	if err := r.lower(ctx, group); err != nil {
		return outcome{}, err
	}
	if err := r.serve(ctx, group, kubeannexv1alpha1.ServingClosed); err != nil {
		return outcome{}, err
	}
	resources, err := r.hostResources(ctx, group.Name)
	if err != nil {
		return outcome{}, err
	}
	if len(resources) == 0 {
		return next(kubeannexv1alpha1.PhasePreflight), nil
	}
	// An earlier attempt may have left objects that are gone by now.
	if err := r.dropImported(ctx, group.Name); err != nil {
		return outcome{}, err
	}
	s := r.sessions.start(group, resources)
	resetResources(group, resources)
	for i := range group.Status.Resources {
		entry := &group.Status.Resources[i]
		entry.Copied, entry.Verified, entry.Digest, entry.HostDigest = 0, 0, "", ""
	}
	progress := r.newReporter(group)
	for _, res := range resources {
		if err := r.copyResource(ctx, group, s, res, progress); err != nil {
			r.sessions.drop(group.Name)
			return outcome{}, err
		}
	}
	s.complete = true
	return next(kubeannexv1alpha1.PhaseCatchingUp), nil
}

// copyResource reads pages and imports them, both at the same time.
func (r *Reconciler) copyResource(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *session, res resource, progress *reporter) error {
	pages := make(chan page, pagesAhead)
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error {
		defer close(pages)
		return eachPage(ctx, r.Connections.Host, res.storage, func(ctx context.Context, p page) error {
			select {
			case pages <- p:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	work.Go(func() error {
		importer := r.newImporter(group.Name, res, s.ledgers[res.plural])
		for p := range pages {
			for i := range p.items {
				if err := importer.put(ctx, &p.items[i]); err != nil {
					return err
				}
			}
			if err := importer.flush(ctx); err != nil {
				return err
			}
			s.show(group, res.plural)
			entry := resourceStatus(group, res.plural)
			entry.Objects = max(entry.Objects, p.total)
			if err := progress.report(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return work.Wait()
}

// show puts the counts of a ledger into the status.
func (s *session) show(group *kubeannexv1alpha1.AnnexedGroup, plural string) {
	l, entry := s.ledgers[plural], resourceStatus(group, plural)
	entry.Objects, entry.Bytes, entry.Copied = l.content.Objects, l.content.Bytes, l.content.Objects
}
