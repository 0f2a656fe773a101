// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

const (
	// writerQPS bounds the requests of one writer: a move is measured under load, not under a flood.
	writerQPS = 20
	// churn is how many objects that come and go a writer has at a time.
	churn = 4
)

// Writers write constantly, each on objects of its own, with a client of
// client-go that retries nothing but what client-go itself retries.
type Writers struct {
	*Journal

	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// writer is one of them.
type writer struct {
	group   *Group
	journal *Journal
	id      int
	client  dynamic.Interface
	// turn numbers the writes.
	turn int64

	patched, updated, applied, reported, planet *entry
	// coming are objects that were created and are still to be deleted.
	coming []*entry
}

// StartWriters starts n writers, spread over the servers of the configs, and
// waits until each has created its objects. Stop them before the verdict.
func (g *Group) StartWriters(tb testing.TB, n int, configs ...*rest.Config) *Writers {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	w := &Writers{Journal: newJournal(), cancel: cancel}
	tb.Cleanup(w.Stop)
	for i := range n {
		config := rest.CopyConfig(configs[i%len(configs)])
		config.QPS, config.Burst = writerQPS, writerQPS
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			tb.Fatal(err)
		}
		one := &writer{group: g, journal: w.Journal, id: i, client: client}
		if err := one.begin(ctx); err != nil {
			tb.Fatalf("starting writer %d of %s: %v", i, g.Name, err)
		}
		w.wait.Go(func() { one.run(ctx) })
	}
	return w
}

// Stop ends the writers after the write that each is at. It may be called twice.
func (w *Writers) Stop() {
	w.cancel()
	w.wait.Wait()
}

func (w *writer) entry(gvr schema.GroupVersionResource, role string, path ...string) *entry {
	e := &entry{gvr: gvr, name: fmt.Sprintf("%s%d-%s", WriterPrefix, w.id, role), path: path}
	if gvr.Resource == "gadgets" {
		e.namespace = w.group.Namespaces[w.id%len(w.group.Namespaces)]
	}
	return e
}

func (w *writer) resource(e *entry) dynamic.ResourceInterface {
	client := w.client.Resource(e.gvr)
	if e.namespace == "" {
		return client
	}
	return client.Namespace(e.namespace)
}

// begin creates the objects that stay.
func (w *writer) begin(ctx context.Context) error {
	gadgets := w.group.Gadgets("v1")
	w.patched = w.entry(gadgets, "patched", "spec", "size")
	w.updated = w.entry(gadgets, "updated", "spec", "size")
	w.applied = w.entry(gadgets, "applied", "spec", "size")
	w.reported = w.entry(gadgets, "reported", "status", "size")
	w.planet = w.entry(w.group.Planets(), "planet", "spec", "size")
	for _, e := range []*entry{w.patched, w.updated, w.applied, w.reported, w.planet} {
		if err := w.create(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// run writes in turns until ctx is done. The write that is under way then goes on to its end.
func (w *writer) run(ctx context.Context) {
	steps := []func(context.Context){w.patch, w.update, w.apply, w.report, w.patchPlanet, w.comeAndGo}
	for i := 0; ctx.Err() == nil; i++ {
		w.turn++
		// A write that is cut off has no known outcome, so it does not end with the test's context.
		write, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		steps[i%len(steps)](write)
		cancel()
	}
}

// did measures a write and keeps its outcome.
func (w *writer) did(e *entry, write func() error, done func()) error {
	start := time.Now()
	err := write()
	w.journal.record(e, time.Since(start), err, done)
	return err
}

func (w *writer) create(ctx context.Context, e *entry) error {
	kind := "Gadget"
	if e.namespace == "" {
		kind = "Planet"
	}
	object := w.group.Object(kind, e.namespace, e.name, map[string]any{"size": int64(0)})
	e.seq = 0
	var created *unstructured.Unstructured
	return w.did(e, func() (err error) {
		created, err = w.resource(e).Create(ctx, object, metav1.CreateOptions{})
		return err
	}, func() { e.uid, e.exists = created.GetUID(), true })
}

func (w *writer) mergePatch(ctx context.Context, e *entry) {
	turn := w.turn
	patch := fmt.Sprintf(`{"spec":{"size":%d}}`, turn)
	w.did(e, func() error { //nolint:errcheck // kept in the journal
		_, err := w.resource(e).Patch(ctx, e.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}, func() { e.seq = turn })
}

func (w *writer) patch(ctx context.Context)       { w.mergePatch(ctx, w.patched) }
func (w *writer) patchPlanet(ctx context.Context) { w.mergePatch(ctx, w.planet) }

// update reads, changes and writes with the resource version that was read, as
// controllers do, and reads again after a conflict.
func (w *writer) update(ctx context.Context) {
	w.readAndWrite(ctx, w.updated, func(client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		_, err := client.Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
}

// report is update for the status.
func (w *writer) report(ctx context.Context) {
	w.readAndWrite(ctx, w.reported, func(client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		_, err := client.UpdateStatus(ctx, object, metav1.UpdateOptions{})
		return err
	})
}

func (w *writer) readAndWrite(ctx context.Context, e *entry, write func(dynamic.ResourceInterface, *unstructured.Unstructured) error) {
	turn, client := w.turn, w.resource(e)
	w.did(e, func() error { //nolint:errcheck // kept in the journal
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			object, err := client.Get(ctx, e.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			w.journal.compare(e, object)
			if err := unstructured.SetNestedField(object.Object, turn, e.path...); err != nil {
				return err
			}
			err = write(client, object)
			if apierrors.IsConflict(err) {
				w.journal.conflict()
			}
			return err
		})
	}, func() { e.seq = turn })
}

func (j *Journal) conflict() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.conflicts++
}

func (w *writer) apply(ctx context.Context) {
	e, turn := w.applied, w.turn
	patch, err := json.Marshal(map[string]any{
		"apiVersion": e.gvr.GroupVersion().String(), "kind": "Gadget",
		"metadata": map[string]any{"name": e.name}, "spec": map[string]any{"size": turn},
	})
	w.did(e, func() error { //nolint:errcheck // kept in the journal
		if err != nil {
			return err
		}
		_, err := w.resource(e).Patch(ctx, e.name, types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: "applier", Force: new(true)})
		return err
	}, func() { e.seq = turn })
}

// comeAndGo creates an object, and deletes the oldest of those that it created.
func (w *writer) comeAndGo(ctx context.Context) {
	e := w.entry(w.group.Gadgets("v1"), fmt.Sprintf("churn-%d", w.turn), "spec", "size")
	if w.create(ctx, e) == nil {
		w.coming = append(w.coming, e)
	}
	if len(w.coming) <= churn {
		return
	}
	oldest := w.coming[0]
	w.coming = w.coming[1:]
	w.did(oldest, func() error { //nolint:errcheck // kept in the journal
		return w.resource(oldest).Delete(ctx, oldest.name, metav1.DeleteOptions{})
	}, func() { oldest.exists = false })
}
