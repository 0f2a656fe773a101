// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
	"github.com/kubeannex/annex/pkg/gone"
)

// releaseRound brings the host's copies to what annex has, and returns how many differed.
func (r *Reconciler) releaseRound(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *releaseSession) (int, error) {
	total, progress := 0, r.newReporter(group)
	var refusals []string
	for _, c := range s.copies {
		round := &releaseRound{r: r, session: s, copies: c, allowNew: group.Spec.AllowNewUIDs,
			writer: &hostcopy.Writer{
				Client: r.Connections.Host.Dynamic, Resource: c.resource.private(), Status: c.status,
				Converted: c.converted, Storage: c.resource.storage.GroupVersion().String(),
			},
			report: func(ctx context.Context, objects int) error {
				entry := resourceStatus(group, c.resource.plural)
				entry.Objects, entry.Copied, entry.Verified = int64(objects), int64(len(c.sources)), 0
				return progress.report(ctx)
			}}
		differences, err := round.run(ctx)
		if err != nil {
			return 0, err
		}
		total += differences
		refusals = appendUnborn(refusals, c.resource.plural, c.unborn)
	}
	return total, newUIDRefusal(refusals)
}

// releaseRound is one comparison of one resource.
type releaseRound struct {
	r        *Reconciler
	session  *releaseSession
	copies   *releaseCopies
	writer   *hostcopy.Writer
	allowNew bool
	// report shows how many of all objects have a copy that is what it has to be.
	report func(ctx context.Context, objects int) error
}

func (o *releaseRound) run(ctx context.Context) (int, error) {
	present := map[string]metav1.PartialObjectMetadata{}
	err := eachMetadata(ctx, o.r.Connections.Annex, o.copies.resource.storage, func(items []metav1.PartialObjectMetadata) {
		for i := range items {
			present[keyOf(&items[i])] = metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: items[i].UID, ResourceVersion: items[i].ResourceVersion}}
		}
	})
	if err != nil {
		return 0, err
	}
	changed, gone := o.copies.differences(present, o.session.owners)
	o.copies.unborn = nil
	if err := o.each(ctx, gone, o.remove); err != nil {
		return 0, err
	}
	if o.copies.compared && len(changed) <= manyChanges {
		err = o.each(ctx, changed, o.fetch)
	} else {
		err = o.fetchListed(ctx, changed, len(present))
	}
	if err != nil {
		return 0, err
	}
	o.copies.compared = true
	return len(changed) + len(gone), o.report(ctx, len(present))
}

// each works on keys, several at a time. An error names the object.
func (o *releaseRound) each(ctx context.Context, keys []string, work func(context.Context, string) error) error {
	tasks, inner := errgroup.WithContext(ctx)
	tasks.SetLimit(copyWriters)
	for _, key := range keys {
		tasks.Go(func() error {
			if err := work(inner, key); err != nil {
				return fmt.Errorf("releasing %s %s: %w", o.copies.resource.plural, key, err)
			}
			return nil
		})
	}
	return tasks.Wait()
}

// remove deletes the copy of an object that annex has no more.
func (o *releaseRound) remove(ctx context.Context, key string) error {
	if err := o.removeCopy(ctx, key); err != nil {
		return err
	}
	o.copies.forget(key)
	return nil
}

func (o *releaseRound) removeCopy(ctx context.Context, key string) error {
	namespace, name := splitKey(key)
	have, err := o.r.Connections.Host.Metadata.Resource(o.copies.resource.private()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if gone.Object(err, name) {
		return nil
	}
	if err != nil {
		return err
	}
	return o.writer.Delete(ctx, have)
}

// fetch reads one object from annex and writes it back. One that has gone is for the next round.
func (o *releaseRound) fetch(ctx context.Context, key string) error {
	namespace, name := splitKey(key)
	object, err := o.r.Connections.Annex.Dynamic.Resource(o.copies.resource.storage).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if gone.Object(err, name) {
		return nil
	}
	if err != nil {
		return err
	}
	return o.writeBack(ctx, object)
}

// fetchListed reads all objects and writes back those with the given keys. It reports after every page.
func (o *releaseRound) fetchListed(ctx context.Context, keys []string, objects int) error {
	return eachPage(ctx, o.r.Connections.Annex, o.copies.resource.storage, func(ctx context.Context, page page) error {
		found := map[string]*unstructured.Unstructured{}
		var due []string
		for i := range page.items {
			key := keyOf(&page.items[i])
			if _, wanted := slices.BinarySearch(keys, key); wanted {
				found[key], due = &page.items[i], append(due, key)
			}
		}
		if err := o.each(ctx, due, func(ctx context.Context, key string) error { return o.writeBack(ctx, found[key]) }); err != nil {
			return err
		}
		return o.report(ctx, objects)
	})
}

// writeBack makes the copy of an object what it has to be.
func (o *releaseRound) writeBack(ctx context.Context, object *unstructured.Unstructured) error {
	key, c := keyOf(object), o.copies
	found, ok := c.copyOf(key)
	if ok && !c.usable(found, object.GetUID(), object.GetDeletionTimestamp() != nil) {
		if o.allowNew {
			if err := o.removeCopy(ctx, key); err != nil {
				return err
			}
		}
		ok = false
	}
	if !ok && !o.allowNew {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unborn = append(c.unborn, key)
		return nil
	}
	wanted := o.session.wanted(object)
	form, err := hostcopy.FormOf(wanted)
	if err != nil {
		return err
	}
	if !ok || !found.form.Matches(form, c.status) {
		if err := o.write(ctx, wanted, ok); err != nil {
			return err
		}
		found, _ = c.copyOf(key)
	}
	o.session.learn(object.GetUID(), found.uid)
	c.settle(object, wanted)
	return nil
}

// write writes a copy, a new one if there is none, and notes what became of it.
func (o *releaseRound) write(ctx context.Context, wanted *unstructured.Unstructured, exists bool) error {
	var have *unstructured.Unstructured
	if exists {
		found, err := o.r.Connections.Host.Dynamic.Resource(o.copies.resource.private()).Namespace(wanted.GetNamespace()).Get(ctx, wanted.GetName(), metav1.GetOptions{})
		if gone.Object(err, wanted.GetName()) {
			o.copies.forget(keyOf(wanted))
			return errCopiesDiffer
		}
		if err != nil {
			return err
		}
		have = found
	}
	written, err := o.writer.Write(ctx, wanted, have)
	if err != nil {
		return err
	}
	o.r.Metrics.wrote(o.copies.resource.storage.Group, o.copies.resource.plural, toCluster, 1)
	return o.copies.put(written)
}
