// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/gone"
)

const (
	// smallRound is the number of differences that can wait for the fence.
	smallRound = 100
	// maxRounds bounds catching up with writers that are as fast as the copy.
	maxRounds = 12
	// parallelReads is how many changed objects are read at a time, and parallelLists how many resources are compared.
	parallelReads = 16
	parallelLists = 4
	// manyChanges is from when on a resource is read as a list instead of object by object.
	manyChanges = 2000
)

// catchUp compares identities and copies what differs, until little does.
func (r *Reconciler) catchUp(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	s := r.sessions.get(group)
	if s == nil || !s.complete {
		return next(kubeannexv1alpha1.PhaseCopying), nil
	}
	if err := r.serve(ctx, group, kubeannexv1alpha1.ServingClosed); err != nil {
		return outcome{}, err
	}
	if back, err := r.definitionsChanged(ctx, group, s); back || err != nil {
		return next(kubeannexv1alpha1.PhaseMirroring), err
	}
	if wait := s.notBefore.Sub(r.Clock.Now()); wait > 0 {
		return again(wait), nil
	}
	if err := r.follow(ctx, group, s); err != nil {
		return outcome{}, err
	}
	// The whole copy is read back here, without a fence; behind the fence it is
	// read again if that is quick. What is written meanwhile is followed once more.
	if err := r.checkContent(ctx, group.Name, s); err != nil {
		return r.startOver(group, err)
	}
	// Caches are filled now, so that nobody waits for them behind the fence.
	if err := r.awaitReplicas(ctx, group.Name, true); err != nil {
		return outcome{}, err
	}
	if err := r.follow(ctx, group, s); err != nil {
		return outcome{}, err
	}
	if err := r.everybodyAnswers(ctx, group.Name); err != nil {
		return outcome{}, err
	}
	return next(kubeannexv1alpha1.PhaseFencing), nil
}

// follow runs rounds until one is small, or they do not get smaller.
func (r *Reconciler) follow(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *session) error {
	progress := r.newReporter(group)
	last := 0
	for i := range maxRounds {
		differences, err := r.round(ctx, group, s)
		if err != nil {
			return err
		}
		if err := progress.report(ctx); err != nil {
			return err
		}
		if differences <= smallRound || i > 0 && differences*5 > last*4 {
			return nil
		}
		last = differences
	}
	return nil
}

// startOver copies again when annex has something else than was imported.
func (r *Reconciler) startOver(group *kubeannexv1alpha1.AnnexedGroup, err error) (outcome, error) {
	if !errors.Is(err, errDifferent) {
		return outcome{}, err
	}
	r.sessions.drop(group.Name)
	r.Recorder.Eventf(group, nil, "Warning", "CopyDiffers", "Verify", "The group is copied again: %s", oneLine(err))
	return outcome{phase: kubeannexv1alpha1.PhaseCopying, after: time.Second}, nil
}

// everybodyAnswers asks every process that a fence would have to wait for. The
// caches of annex are filled here: what keeps them from it must not be found out behind the fence.
func (r *Reconciler) everybodyAnswers(ctx context.Context, group string) error {
	if err := r.awaitReplicas(ctx, group, true); err != nil {
		return fmt.Errorf("asking every replica of annex: %w", err)
	}
	err := r.onEveryHost(ctx, func(ctx context.Context, server hostEndpoint) error {
		return server.Kube.CoreV1().RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
	})
	if err != nil {
		return fmt.Errorf("asking every kube-apiserver: %w", err)
	}
	return nil
}

// definitionsChanged says that the copy is of definitions that the host has no more.
func (r *Reconciler) definitionsChanged(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *session) (bool, error) {
	present, err := r.hostResources(ctx, group.Name)
	if err != nil {
		return false, err
	}
	changes := changedSince(s, present)
	if changes == "" {
		return false, nil
	}
	r.sessions.drop(group.Name)
	r.Recorder.Eventf(group, nil, "Normal", "DefinitionsChanged", "Mirror", "The group is copied again because definitions changed: %s", changes)
	return true, nil
}

// round copies what differs from the ledgers and returns how much that was.
func (r *Reconciler) round(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *session) (int, error) {
	var differences atomic.Int64
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(parallelLists)
	for _, res := range s.resources {
		work.Go(func() error {
			n, err := r.roundOf(ctx, group.Name, s.ledgers[res.plural], res)
			differences.Add(int64(n))
			return err
		})
	}
	err := work.Wait()
	if err != nil {
		// An import that failed may have stored a part that no ledger knows of.
		s.checked = false
	}
	for _, res := range s.resources {
		s.show(group, res.plural)
	}
	return int(differences.Load()), err
}

func (r *Reconciler) roundOf(ctx context.Context, group string, l *ledger, res resource) (int, error) {
	comparison := l.compare()
	if err := eachMetadata(ctx, r.Connections.Host, res.storage, comparison.add); err != nil {
		return 0, err
	}
	importer := r.newImporter(group, res, l)
	gone := comparison.gone()
	for _, key := range gone {
		if err := importer.remove(ctx, key); err != nil {
			return 0, err
		}
	}
	if err := r.fetch(ctx, importer, comparison.changed); err != nil {
		return 0, err
	}
	return len(gone) + len(comparison.changed), importer.flush(ctx)
}

// fetch reads objects from the host and imports them.
func (r *Reconciler) fetch(ctx context.Context, importer *importer, keys []string) error {
	if len(keys) > manyChanges {
		return r.fetchListed(ctx, importer, keys)
	}
	for chunk := range slices.Chunk(keys, maxBatchObjects) {
		objects := make([]*unstructured.Unstructured, len(chunk))
		work, readCtx := errgroup.WithContext(ctx)
		work.SetLimit(parallelReads)
		for i, key := range chunk {
			work.Go(func() (err error) {
				namespace, name := splitKey(key)
				objects[i], err = r.Connections.Host.Dynamic.Resource(importer.resource.storage).Namespace(namespace).Get(readCtx, name, metav1.GetOptions{})
				if gone.Object(err, name) {
					// Gone since the list: the next round sees that.
					objects[i], err = nil, nil
				}
				return err
			})
		}
		if err := work.Wait(); err != nil {
			return fmt.Errorf("reading changed %s: %w", importer.resource.plural, err)
		}
		for _, object := range objects {
			if object == nil {
				continue
			}
			if err := importer.put(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetchListed reads the whole resource and imports those objects that are asked for.
func (r *Reconciler) fetchListed(ctx context.Context, importer *importer, keys []string) error {
	wanted := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		wanted[key] = struct{}{}
	}
	return eachPage(ctx, r.Connections.Host, importer.resource.storage, func(ctx context.Context, p page) error {
		for i := range p.items {
			if _, ok := wanted[keyOf(&p.items[i])]; !ok {
				continue
			}
			if err := importer.put(ctx, &p.items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}
