// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// laggingStore is an etcd3 store below caches that can let the next cache be filled late and
// see nothing more for a while.
type laggingStore struct {
	storage.Interface
	// lags makes the caches lag that start from then on.
	lags atomic.Bool
	// read is closed when such a cache has been sent all that there is, before it knows it.
	read func()
	// fill and catchUp, when closed, let it know that, and what has come since.
	fill, catchUp chan struct{}
}

// GetList implements storage.Interface.
func (s *laggingStore) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	err := s.Interface.GetList(ctx, key, opts, listObj)
	if s.lags.Load() && callerOfCache(ctx) == CallerCache {
		s.read()
		select {
		case <-s.fill:
		case <-ctx.Done():
		}
	}
	return err
}

// Watch implements storage.Interface.
func (s *laggingStore) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	watched, err := s.Interface.Watch(ctx, key, opts)
	if err != nil || !s.lags.Load() {
		return watched, err
	}
	w := &laggingWatch{inner: watched, result: make(chan watch.Event), stopped: make(chan struct{})}
	go w.run(s, opts.SendInitialEvents != nil && *opts.SendInitialEvents)
	return w, nil
}

// laggingWatch sends the initial events, if there are any, and holds the rest.
type laggingWatch struct {
	inner    watch.Interface
	result   chan watch.Event
	stopped  chan struct{}
	stopOnce sync.Once
}

// ResultChan implements watch.Interface.
func (w *laggingWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *laggingWatch) Stop() { w.stopOnce.Do(func() { close(w.stopped) }) }

func (w *laggingWatch) run(s *laggingStore, initial bool) {
	defer close(w.result)
	defer w.inner.Stop()
	for {
		var event watch.Event
		var ok bool
		select {
		case event, ok = <-w.inner.ResultChan():
		case <-w.stopped:
		}
		if !ok {
			return
		}
		var held <-chan struct{}
		switch {
		case !initial:
			held = s.catchUp
		case endsInitialEvents(event):
			initial, held = false, s.fill
			s.read()
		}
		if !w.send(event, held) {
			return
		}
	}
}

// send sends an event once the channel, if there is one, is closed.
func (w *laggingWatch) send(event watch.Event, held <-chan struct{}) bool {
	if held != nil {
		select {
		case <-held:
		case <-w.stopped:
			return false
		}
	}
	select {
	case w.result <- event:
		return true
	case <-w.stopped:
		return false
	}
}

func endsInitialEvents(event watch.Event) bool {
	object := event.Object
	if recorded, ok := object.(storage.WatchEventWithRecordTime); ok {
		object = recorded.Unwrap()
	}
	pod, ok := object.(*example.Pod)
	return ok && event.Type == watch.Bookmark && pod.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// podsNow are the pods that the cache in service knows, and the revision of the list.
func podsNow(t *testing.T, s storage.Interface) (names []string, revision uint64) {
	t.Helper()
	list, opts := &example.PodList{}, everyPod()
	opts.ResourceVersion = "0"
	if err := s.GetList(t.Context(), podPrefix, opts, list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	revision, err := s.Versioner().ParseResourceVersion(list.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(slices.Values(names)), revision
}

// TestNoReadGoesBack exchanges a cache while the next one is filled but does not know the
// last write, which clients have read from the one in service. Until it has caught up with etcd it
// must not answer: a list at resourceVersion 0 would show the past, and one of what was
// seen would be refused as too new.
func TestNoReadGoesBack(t *testing.T) {
	source := &changingIndexes{}
	s := newStack(t, cached, stackOptions{source: source, lazy: true})
	read := make(chan struct{})
	etcd := &laggingStore{
		Interface: s.raw.Interface, read: sync.OnceFunc(func() { close(read) }), fill: make(chan struct{}), catchUp: make(chan struct{}),
	}
	s.raw.Interface = etcd // before the first list nobody reads
	createPod(t.Context(), t, s, "web")
	if names, _ := podsNow(t, s); !slices.Equal(names, []string{"web"}) {
		t.Fatalf("got %v before anything was declared", names)
	}

	etcd.lags.Store(true)
	declared := Indexes{Labels: []string{"app"}}
	source.change(declared)
	select {
	case <-read:
	case <-time.After(wait.ForeverTestTimeout):
		t.Fatal("no cache with the declared indexes is filled")
	}
	createPod(t.Context(), t, s, "db")
	var seen uint64
	eventually(t, "cache in service to know the second pod", func() bool {
		var names []string
		names, seen = podsNow(t, s)
		return len(names) == 2
	})

	asked := Request{CallerCache, OperationCurrentResourceVersion}
	before := s.metrics.Counts(podResource())[asked]
	close(etcd.fill)
	// That etcd's revision is asked for a second time says that the cache was found behind the first one.
	eventually(t, "the next cache to be found behind etcd", func() bool {
		if names, revision := podsNow(t, s); len(names) != 2 || revision < seen {
			t.Fatalf("a list at revision %d has %v after both pods were seen at %d", revision, names, seen)
		}
		if inService(s.Interface, declared) {
			t.Fatal("a cache that is behind etcd is in service")
		}
		return s.metrics.Counts(podResource())[asked] >= before+2
	})
	close(etcd.catchUp)
	eventually(t, "declared indexes to be in service", func() bool { return inService(s.Interface, declared) })
	names, revision := podsNow(t, s)
	if diff := cmp.Diff([]string{"db", "web"}, names); diff != "" || revision < seen {
		t.Errorf("list at revision %d after %d was seen (-want +got):\n%s", revision, seen, diff)
	}
}
