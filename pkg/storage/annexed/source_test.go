// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// incomingEvents is how many events the Cacher keeps for its dispatcher
// (k8s.io/apiserver pkg/storage/cacher/cacher.go, NewCacherFromConfig). A write is
// two of them: the change and the new revision.
const incomingEvents = 100

// busyStack is a stack whose dispatcher a test holds up: it stands still while the gate is locked.
type busyStack struct {
	*stack
	source *changingIndexes
	gate   sync.RWMutex
	pods   int
}

func newBusyStack(t *testing.T) *busyStack {
	t.Helper()
	b := &busyStack{source: &changingIndexes{}}
	b.stack = newStack(t, cached, stackOptions{source: b.source, triggers: storage.IndexerFuncs{
		"spec.nodeName": func(obj runtime.Object) string {
			b.gate.RLock()
			defer b.gate.RUnlock()
			return obj.(*example.Pod).Spec.NodeName
		},
	}})
	return b
}

// write creates n pods and returns the last.
func (b *busyStack) write(t *testing.T, s storage.Interface, n int) *example.Pod {
	t.Helper()
	var pod *example.Pod
	for range n {
		pod = createPod(t.Context(), t, s, fmt.Sprintf("pod-%d", b.pods))
		b.pods++
	}
	return pod
}

// jam writes more than the Cacher can keep for the dispatcher, which the caller has locked out.
func (b *busyStack) jam(t *testing.T) {
	t.Helper()
	before := b.pods
	b.write(t, b, 2*incomingEvents+10)
	last := fmt.Sprintf("%sdefault/pod-%d", podPrefix, before+incomingEvents/2-5)
	eventually(t, "cache to have about as many events as it can keep", func() bool {
		return b.Get(t.Context(), last, storage.GetOptions{ResourceVersion: "0"}, &example.Pod{}) == nil
	})
}

// unread starts watches that nobody reads: one has more to send than fits its
// buffer, the other has nothing to send yet.
func (b *busyStack) unread(t *testing.T) map[string]watch.Interface {
	t.Helper()
	created := b.write(t, b.settled(), 40)
	watches := map[string]watch.Interface{}
	for name, revision := range map[string]string{"with a full buffer": "0", "without an event": created.ResourceVersion} {
		watched, err := b.Watch(t.Context(), podPrefix, storage.ListOptions{ResourceVersion: revision, Predicate: storage.Everything, Recursive: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(watched.Stop)
		watches[name] = watched
	}
	return watches
}

func wantEnd(t *testing.T, watches map[string]watch.Interface) {
	t.Helper()
	timeout := time.After(wait.ForeverTestTimeout)
	for name, watched := range watches {
		for ended := false; !ended; {
			select {
			case event, ok := <-watched.ResultChan():
				ended = !ok
				if ok && event.Type != watch.Added {
					t.Errorf("watch %s: got %s, want the events that it had and then the end", name, event.Type)
				}
			case <-timeout:
				t.Fatalf("watch %s did not end with its cache", name)
			}
		}
	}
}

// TestBusyCacheComesToRest exchanges and destroys caches whose dispatcher is behind.
// Which of two ready channels a goroutine of the Cacher takes is chance, hence the rounds.
func TestBusyCacheComesToRest(t *testing.T) {
	b := newBusyStack(t)
	var unlock func()
	hold := func() {
		b.gate.Lock()
		unlock = sync.OnceFunc(b.gate.Unlock)
	}
	for round := range 6 {
		watches := b.unread(t)
		hold()
		defer unlock()
		b.jam(t)
		declared := Indexes{Labels: []string{fmt.Sprintf("round-%d", round)}}
		b.source.change(declared)
		eventually(t, "declared indexes to be in service", func() bool { return inService(b.Interface, declared) })
		wantEnd(t, watches)
		unlock()
		r := rotationOf(b.Interface)
		eventually(t, "cache before to have stopped", func() bool {
			r.lock.RLock()
			defer r.lock.RUnlock()
			return len(r.replaced) == 0
		})
	}

	watches := b.unread(t)
	hold()
	defer unlock()
	b.jam(t)
	destroyed := make(chan struct{})
	go func() {
		defer close(destroyed)
		b.destroy()
	}()
	wantEnd(t, watches)
	unlock()
	select {
	case <-destroyed:
	case <-time.After(wait.ForeverTestTimeout):
		t.Fatal("the storage is not destroyed")
	}
}

// slowStorage lists and watches for as long as it is let.
type slowStorage struct {
	storage.Interface
	begun chan struct{}
}

func (s slowStorage) GetList(ctx context.Context, _ string, _ storage.ListOptions, _ runtime.Object) error {
	s.begun <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func (s slowStorage) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func TestSourceEndsItsLists(t *testing.T) {
	s := newSource(slowStorage{begun: make(chan struct{}, 2)})
	done := make(chan error)
	list := func() { done <- s.GetList(t.Context(), podPrefix, storage.ListOptions{}, nil) }
	go list()
	<-s.store.(slowStorage).begun
	s.end()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the list to be canceled", err)
	}
	go list()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want a list after the end to be canceled", err)
	}
}

// TestSourceWaitsForItsReader cuts a source off whose reader has a watch open.
func TestSourceWaitsForItsReader(t *testing.T) {
	s := newSource(slowStorage{})
	watched, err := s.Watch(t.Context(), podPrefix, storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quiet := make(chan bool)
	go func() { quiet <- s.cut(wait.ForeverTestTimeout) }()
	if event, ok := <-watched.ResultChan(); ok {
		t.Errorf("got %v, want the watch to end", event)
	}
	select {
	case <-quiet:
		t.Error("the source did not wait until its reader had stopped the watch")
	default:
	}
	watched.Stop()
	watched.Stop()
	if !<-quiet {
		t.Error("the source waits for a watch that was stopped")
	}
	after, err := s.Watch(t.Context(), podPrefix, storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.ResultChan() != nil {
		t.Error("a watch that was started after the cut may have events")
	}
}

func TestSourceDoesNotWaitForEver(t *testing.T) {
	s := newSource(slowStorage{})
	if _, err := s.Watch(t.Context(), podPrefix, storage.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if s.cut(time.Millisecond) {
		t.Error("the source is said to be quiet with a watch that nobody stopped")
	}
}

// failingStorage refuses what its errors say.
type failingStorage struct {
	storage.Interface
	listErr, watchErr error
}

func (s failingStorage) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return s.listErr
}

func (s failingStorage) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), s.watchErr
}

// TestSourceTellsOfFailures reads everything in the ways that a reflector does.
func TestSourceTellsOfFailures(t *testing.T) {
	list := func(ctx context.Context, s *source) { _ = s.GetList(ctx, podPrefix, everyPod(), newPodList()) }
	watched := func(ctx context.Context, s *source) watch.Interface {
		w, _ := s.Watch(ctx, podPrefix, everyPod())
		return w
	}
	for name, tc := range map[string]struct {
		storage failingStorage
		read    func(context.Context, *source)
		want    bool
	}{
		"list":               {read: list},
		"list that fails":    {storage: failingStorage{listErr: errSynthetic}, read: list, want: true},
		"watch":              {read: func(ctx context.Context, s *source) { watched(ctx, s) }},
		"watch that fails":   {storage: failingStorage{watchErr: errSynthetic}, read: func(ctx context.Context, s *source) { watched(ctx, s) }, want: true},
		"watch that is over": {read: func(ctx context.Context, s *source) { watched(ctx, s).Stop() }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(tc.storage)
			told := make(chan struct{})
			forget := s.onFailure(func() { close(told) })
			tc.read(t.Context(), s)
			if failed := !forget(); failed != tc.want {
				t.Errorf("got a failure %t, want %t", failed, tc.want)
			}
			if tc.want {
				<-told
			}
		})
	}
}
