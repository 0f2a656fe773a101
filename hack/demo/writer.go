// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const (
	// busyObjects is how many objects of a resource the writer changes in turn.
	busyObjects = 20
	// writeInterval is the pause between two writes.
	writeInterval = 25 * time.Millisecond
	// countAnnotation is what the writer changes.
	countAnnotation = "demo.kubeannex.io/count"
)

// writer is a client that changes objects all the time, with client-go's default
// handling of a server that asks to wait.
type writer struct {
	resource dynamic.NamespaceableResourceInterface
	objects  []*unstructured.Unstructured
	stop     context.CancelFunc
	ended    chan struct{}

	// Valid after close.
	writes int
	// failed is the first error.
	failed error
	// longest is the longest that a write took.
	longest time.Duration
	// acknowledged is the last count of every object that a server has answered for.
	acknowledged map[string]string
}

// write starts a writer over the first objects of a set.
func (d *demo) write(ctx context.Context, set *dataset) *writer {
	w := &writer{
		resource: d.client.Resource(set.GroupVersionResource), objects: set.objects[:busyObjects],
		ended: make(chan struct{}), acknowledged: map[string]string{},
	}
	ctx, w.stop = context.WithCancel(ctx)
	go w.run(ctx)
	return w
}

func (w *writer) run(ctx context.Context) {
	defer close(w.ended)
	tick := time.NewTicker(writeInterval)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		object := w.objects[i%len(w.objects)]
		start := time.Now()
		// A write that was begun is finished, so that its outcome is known.
		err := w.set(context.WithoutCancel(ctx), object, strconv.Itoa(i))
		w.longest = max(w.longest, time.Since(start))
		w.writes++
		if err != nil && w.failed == nil {
			w.failed = err
		}
	}
}

func (w *writer) set(ctx context.Context, object *unstructured.Unstructured, count string) error {
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, countAnnotation, count)
	_, err := w.resource.Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("writing %s: %w", object.GetName(), err)
	}
	w.acknowledged[keyOf(object)] = count
	return nil
}

// close ends the writer after its current write.
func (w *writer) close() {
	w.stop()
	<-w.ended
}

func keyOf(object metav1.Object) string { return object.GetNamespace() + "/" + object.GetName() }
