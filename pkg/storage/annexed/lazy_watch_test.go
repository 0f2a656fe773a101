// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// newLateStack returns a stack whose cache was started after the pods web and db were
// created, and options for a watch from web.
func newLateStack(t *testing.T) (*stack, storage.ListOptions) {
	t.Helper()
	s := newStack(t, cached, stackOptions{lazy: true})
	web := createPod(t.Context(), t, s, "web")
	createPod(t.Context(), t, s, "db")
	if err := s.GetList(t.Context(), podPrefix, everyPod(), newPodList()); err != nil {
		t.Fatal(err)
	}
	opts := everyPod()
	opts.ResourceVersion = web.ResourceVersion
	return s, opts
}

func watchPods(t *testing.T, s *stack, opts storage.ListOptions) watch.Interface {
	t.Helper()
	watched, err := s.Watch(t.Context(), podPrefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	return watched
}

// isExpired reports whether the first event of a watch is that it begins too early.
func isExpired(watched watch.Interface) bool {
	event := <-watched.ResultChan()
	return event.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(event.Object))
}

// addedPods takes some events from a watch, which have to be creations.
func addedPods(t *testing.T, watched watch.Interface, count int) []string {
	t.Helper()
	var names []string
	for range count {
		event := <-watched.ResultChan()
		if event.Type != watch.Added {
			t.Fatalf("got %v", event)
		}
		names = append(names, event.Object.(*example.Pod).Name)
	}
	return names
}

// TestWatchFromBeforeTheFirstCache watches from a revision that the storage gave before it
// had a cache, as a client does that creates an object and follows it.
func TestWatchFromBeforeTheFirstCache(t *testing.T) {
	for name, tc := range map[string]struct {
		selector fields.Selector
		want     []string
	}{
		"all":             {selector: fields.Everything(), want: []string{"db", "cache", "last"}},
		"with a selector": {selector: fields.OneTermNotEqualSelector("metadata.name", "cache"), want: []string{"db", "last"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, opts := newLateStack(t)
			opts.Predicate.Field, opts.Predicate.GetAttrs = tc.selector, podAttributes
			ctx, recorder := WithRecorder(t.Context())
			watched, err := s.Watch(ctx, podPrefix, opts)
			if err != nil {
				t.Fatal(err)
			}
			createPod(t.Context(), t, s, "cache")
			createPod(t.Context(), t, s, "last")
			if diff := cmp.Diff(tc.want, addedPods(t, watched, len(tc.want))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if reading, _ := recorder.Reading(); reading.Source != SourceEtcd || reading.Rule != RuleWatchFromEtcd {
				t.Errorf("got %+v, want a watch that etcd answers", reading)
			}
			s.destroy()
			if event, ok := <-watched.ResultChan(); ok {
				t.Errorf("got %v, want the watch to end with the storage", event)
			}
		})
	}
}

// TestLateWatchesAreBounded has more of them than etcd is asked for. Those above are
// refused, until another ends.
func TestLateWatchesAreBounded(t *testing.T) {
	s, opts := newLateStack(t)
	var watches []watch.Interface
	for range lateWatches {
		watches = append(watches, watchPods(t, s, opts))
	}
	ctx, _ := WithExplanation(t.Context())
	if _, err := s.Watch(ctx, podPrefix, opts); err != nil {
		t.Errorf("explained watch: %v", err)
	}
	above := watchPods(t, s, opts)
	if !isExpired(above) {
		t.Error("a watch above the bound is not refused as too old")
	}
	above.Stop()
	for range 2 {
		watches[0].Stop()
	}
	if diff := cmp.Diff([]string{"db"}, addedPods(t, watchPods(t, s, opts), 1)); diff != "" {
		t.Errorf("events after another watch has ended (-want +got):\n%s", diff)
	}
	again := watchPods(t, s, opts)
	if !isExpired(again) {
		t.Error("a watch that was stopped twice has made room for two")
	}
}

// TestLateWatchEnds has one that outlives what etcd is asked for. The client goes on from
// the last event.
func TestLateWatchEnds(t *testing.T) {
	s, opts := newLateStack(t)
	rotationOf(s.Interface).lateWatchPeriod = 50 * time.Millisecond
	watched := watchPods(t, s, opts)
	for range watched.ResultChan() {
		continue
	}
	watched.Stop()
	if got := len(rotationOf(s.Interface).lateWatches); got != 0 {
		t.Errorf("%d watches are counted that have ended", got)
	}
}

// TestLateWatchOfFailedHandler leaves a watch to its context, as upstream's handler does that
// fails after it was started.
func TestLateWatchOfFailedHandler(t *testing.T) {
	s, opts := newLateStack(t)
	ctx, cancel := context.WithCancel(t.Context())
	watched, err := s.Watch(ctx, podPrefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range watched.ResultChan() {
		continue
	}
	eventually(t, "the watch to be counted no more", func() bool { return len(rotationOf(s.Interface).lateWatches) == 0 })
}

// TestLateWatchFromCompacted begins at a revision of which etcd does not know either what
// came after it.
func TestLateWatchFromCompacted(t *testing.T) {
	s, opts := newLateStack(t)
	last := createPod(t.Context(), t, s, "last")
	s.compact(t.Context(), t, last.ResourceVersion)
	if !isExpired(watchPods(t, s, opts)) {
		t.Error("a watch from a revision that is compacted is not refused as too old")
	}
}

func TestLateness(t *testing.T) {
	for name, tc := range map[string]struct {
		late     lateness
		revision uint64
		want     bool
	}{
		"not known when it was opened":   {late: lateness{filled: 9}, revision: 5},
		"from before it was opened":      {late: lateness{born: 3, filled: 9}, revision: 2},
		"from when it was opened":        {late: lateness{born: 3, filled: 9}, revision: 3, want: true},
		"from before the cache":          {late: lateness{born: 3, filled: 9}, revision: 8, want: true},
		"from when the cache was filled": {late: lateness{born: 3, filled: 9}, revision: 9},
		"any":                            {late: lateness{born: 3, filled: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.late.missed(tc.revision); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// TestUnmarkedWatch leaves bookmarks out, and ends with the watch below it and when it is stopped, whether it is read or not.
func TestUnmarkedWatch(t *testing.T) {
	event := func(kind watch.EventType) watch.Event { return watch.Event{Type: kind, Object: &example.Pod{}} }
	sent := []watch.Event{event(watch.Bookmark), event(watch.Added), event(watch.Bookmark), event(watch.Modified), event(watch.Deleted), event(watch.Error)}
	t.Run("read to its end", func(t *testing.T) {
		inner := watch.NewFakeWithChanSize(len(sent), false)
		for _, e := range sent {
			inner.Action(e.Type, e.Object)
		}
		inner.Stop()
		var got []watch.EventType
		for e := range newUnmarkedWatch(inner).ResultChan() {
			got = append(got, e.Type)
		}
		if diff := cmp.Diff([]watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Error}, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			inner := watch.NewFake()
			watched := newUnmarkedWatch(inner)
			inner.Add(&example.Pod{})
			synctest.Wait() // until the event waits for somebody who reads
			watched.Stop()
			watched.Stop()
			if !inner.IsStopped() {
				t.Error("the watch below goes on")
			}
			// A goroutine that is left would be found at the end.
		})
	})
}
