// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// RawWatch is one watch request, without client-go's reflector around it. When
// it ends it asks once more with the last resource version that it saw, and
// keeps what the server answered.
type RawWatch struct {
	client dynamic.NamespaceableResourceInterface
	gvr    schema.GroupVersionResource
	done   chan struct{}

	mu     sync.Mutex
	events map[watch.EventType]int
	// last is the newest resource version that was seen.
	last string
	// ended says when the watch ended, and err what the server said in it, if anything.
	ended time.Time
	err   error
}

// RawWatch begins a watch of a resource at the server of config. It runs until
// the server ends it or the test is over.
func (g *Group) RawWatch(tb testing.TB, config *rest.Config, gvr schema.GroupVersionResource) *RawWatch {
	tb.Helper()
	w := &RawWatch{client: g.Client(tb, config, gvr), gvr: gvr, done: make(chan struct{}), events: map[watch.EventType]int{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	list, err := w.client.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		tb.Fatal(err)
	}
	w.last = list.GetResourceVersion()
	stream, err := w.client.Watch(ctx, metav1.ListOptions{ResourceVersion: w.last, AllowWatchBookmarks: true})
	if err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(w.done)
		w.read(stream)
	}()
	tb.Cleanup(func() {
		cancel()
		stream.Stop()
		<-w.done
	})
	return w
}

func (w *RawWatch) read(stream watch.Interface) {
	for event := range stream.ResultChan() {
		w.mu.Lock()
		w.events[event.Type]++
		if object, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Error {
			w.last = object.GetResourceVersion()
		}
		if event.Type == watch.Error {
			w.err = apierrors.FromObject(event.Object)
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = time.Now()
}

// Count is the number of events of a type that were seen.
func (w *RawWatch) Count(kind watch.EventType) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[kind]
}

// MustEnd waits until the watch has ended and returns the error that was its last
// event, nil without one. A watch that goes on in silence fails the test.
func (w *RawWatch) MustEnd(tb testing.TB, limit time.Duration) error {
	tb.Helper()
	select {
	case <-w.done:
	case <-time.After(limit):
		tb.Fatalf("a watch of %s is still open after %s", w.gvr, limit)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Resume asks for a watch from the last resource version that was seen and
// returns the server's error: from the request, or from the first event. Nil
// means that the watch goes on; it is then shown to see a new write.
func (w *RawWatch) Resume(tb testing.TB) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(Context(tb), markerTimeout)
	defer cancel()
	w.mu.Lock()
	options := metav1.ListOptions{ResourceVersion: w.last, AllowWatchBookmarks: true}
	w.mu.Unlock()
	stream, err := w.client.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer stream.Stop()
	name := Mark(tb, w.client, w.gvr)
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		if object, ok := event.Object.(*unstructured.Unstructured); ok && object.GetName() == name {
			return nil
		}
	}
	tb.Errorf("a watch of %s from revision %s is silent: it has not shown %s", w.gvr, options.ResourceVersion, name)
	return errors.New("silent")
}

// MustBeExpired fails the test unless the server says that the last resource
// version is gone, so that the client lists again.
func (w *RawWatch) MustBeExpired(tb testing.TB) {
	tb.Helper()
	if err := w.Resume(tb); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		tb.Errorf("a watch of %s from revision %s: %v, want 410 Expired", w.gvr, w.last, err)
	}
}

// String tells what the watch saw.
func (w *RawWatch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("watch of %s: %v, last revision %s, last error %v", w.gvr.Resource, w.events, w.last, w.err)
}
