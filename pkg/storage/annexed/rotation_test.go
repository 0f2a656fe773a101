// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"bytes"
	"context"
	"maps"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kubeannex/annex/test/env/testetcd"
)

// changingIndexes is an IndexSource for one storage that a test changes.
type changingIndexes struct {
	lock    sync.Mutex
	current Indexes
	declare func(Indexes)
}

func (c *changingIndexes) Follow(_ schema.GroupResource, _ runtime.Object, declare func(Indexes)) func() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.declare = declare
	declare(c.current)
	return func() { c.change(Indexes{}) }
}

func (c *changingIndexes) change(indexes Indexes) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.current = indexes
	c.declare(indexes)
}

func rotationOf(s storage.Interface) *rotation { return s.(*store).inner.(*rotation) }

// inService reports whether the storage has the indexes and builds nothing.
func inService(s storage.Interface, indexes Indexes) bool {
	r := rotationOf(s)
	r.lock.RLock()
	defer r.lock.RUnlock()
	return r.declared.Equal(indexes) && !r.building
}

// follower keeps a copy of the objects as an informer does: it lists, watches
// from there, and watches on or lists anew when the watch ends.
type follower struct {
	selector storage.SelectionPredicate
	revision string

	lock    sync.Mutex
	objects map[string]string
	relists int
}

func (f *follower) run(ctx context.Context, t testing.TB, s storage.Interface, prefix string) {
	t.Helper()
	for ctx.Err() == nil {
		if f.revision == "" && !f.list(ctx, t, s, prefix) {
			return
		}
		watched, err := s.Watch(ctx, prefix, storage.ListOptions{ResourceVersion: f.revision, Predicate: f.selector, Recursive: true})
		if err != nil {
			t.Error(err)
			return
		}
		f.watch(t, watched, prefix)
	}
}

func (f *follower) list(ctx context.Context, t testing.TB, s storage.Interface, prefix string) bool {
	t.Helper()
	got := listOf(ctx, s, prefix, storage.ListOptions{Predicate: f.selector, Recursive: true})
	if ctx.Err() != nil {
		return false
	}
	if got.Error != "" {
		t.Error(got.Error)
		return false
	}
	f.revision = got.ResourceVersion
	f.relists++
	f.lock.Lock()
	f.objects = map[string]string{}
	f.lock.Unlock()
	for _, item := range got.Items {
		f.put(&unstructured.Unstructured{Object: item})
	}
	return true
}

func (f *follower) put(object *unstructured.Unstructured) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.objects[object.GetNamespace()+"/"+object.GetName()] = object.GetResourceVersion()
}

func (f *follower) remove(object *unstructured.Unstructured) {
	f.lock.Lock()
	defer f.lock.Unlock()
	delete(f.objects, object.GetNamespace()+"/"+object.GetName())
}

func (f *follower) held() map[string]string {
	f.lock.Lock()
	defer f.lock.Unlock()
	return maps.Clone(f.objects)
}

func (f *follower) watch(t testing.TB, watched watch.Interface, prefix string) {
	t.Helper()
	defer watched.Stop()
	for event := range watched.ResultChan() {
		object := event.Object
		if wrapped, ok := object.(runtime.CacheableObject); ok {
			object = wrapped.GetObject()
		}
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			gadget := object.(*unstructured.Unstructured)
			if f.revision = gadget.GetResourceVersion(); event.Type == watch.Deleted {
				f.remove(gadget)
			} else {
				f.put(gadget)
			}
		default:
			if err := apierrors.FromObject(object); !apierrors.IsResourceExpired(err) {
				t.Errorf("watch below %s ended with %v", prefix, err)
			}
			f.revision = ""
			return
		}
	}
}

// TestRedeclaringChangesNoAnswer changes the declaration again and again while
// others write, list and follow. No answer may be short, and no follower may
// end up with anything but what is stored.
func TestRedeclaringChangesNoAnswer(t *testing.T) {
	client := testetcd.Run(t, nil)
	source := &changingIndexes{current: gadgetIndexes(Trigger{Field: colorField})}
	w := newTwins(t, client, Indexes{})
	w.indexed = openGadgets(t, client, w.prefix, source)

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for parity := range 2 {
		running.Go(func() {
			own := &dice{data: randomBytes(uint64(parity+20), 1_000_000)}
			for ctx.Err() == nil {
				w.write(t.Context(), t, own, oneOf(own, w.plain, w.indexed), parity)
			}
		})
	}
	running.Go(func() {
		d := &dice{data: randomBytes(2, 1_000_000)}
		for ctx.Err() == nil && !d.empty() {
			w.compareAtRevision(t, d)
		}
	})
	followCtx, unfollow := context.WithCancel(t.Context())
	defer unfollow()
	followers := []*follower{
		{selector: storage.Everything},
		{selector: storage.SelectionPredicate{Label: labels.SelectorFromSet(labels.Set{teamLabel: "a"}), Field: fields.Everything(), GetAttrs: gadgetAttributes()}},
		{selector: storage.SelectionPredicate{Label: labels.Everything(), Field: fields.OneTermEqualSelector(colorField, "red"), GetAttrs: gadgetAttributes()}},
	}
	var following sync.WaitGroup
	for _, f := range followers {
		following.Go(func() { f.run(followCtx, t, w.indexed, w.prefix) })
	}

	d := &dice{data: randomBytes(3, 1000)}
	for range 12 {
		next := gadgetIndexes(d.trigger())
		next.Fields = next.Fields[:d.pick(4)]
		source.change(gadgetIndexes(Trigger{})) // abandoned at once
		source.change(next)
		eventually(t, "declared indexes to be in service", func() bool { return inService(w.indexed, next) })
	}
	cancel()
	running.Wait()
	w.checkFollowers(t, followers)
	unfollow()
	following.Wait()
}

// checkFollowers writes an object that all followers select, waits until they
// have it, and compares what they hold with what is stored.
func (w *twins) checkFollowers(t testing.TB, followers []*follower) {
	t.Helper()
	last := newGadget().(*unstructured.Unstructured)
	last.SetNamespace("z")
	last.SetName("last")
	last.SetLabels(map[string]string{teamLabel: "a"})
	last.Object["spec"] = map[string]any{"color": "red"}
	stored := newGadget().(*unstructured.Unstructured)
	if err := w.plain.Create(t.Context(), w.key("z", "last"), last, stored, 0); err != nil {
		t.Fatal(err)
	}
	w.changes = append(w.changes, change{revision: revisionOf(t, stored), after: stored})
	for i, f := range followers {
		eventually(t, "follower to see the last write", func() bool { return f.held()["z/last"] != "" })
		want := map[string]string{}
		for _, object := range w.state() {
			if matches(t, f.selector, object) {
				want[object.GetNamespace()+"/"+object.GetName()] = object.GetResourceVersion()
			}
		}
		if diff := cmp.Diff(want, f.held()); diff != "" {
			t.Errorf("follower %d (-stored +followed):\n%s", i, diff)
		}
	}
}

// TestCacheInServiceAnswersUntilTheNextIsFilled lets a new cache fail to read from etcd.
func TestCacheInServiceAnswersUntilTheNextIsFilled(t *testing.T) {
	source := &changingIndexes{}
	s := newStack(t, cached, stackOptions{source: source})
	createPod(t.Context(), t, s, "web")
	fromCache := func() []string {
		list := &example.PodList{}
		if err := s.GetList(t.Context(), podPrefix, storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything, Recursive: true}, list); err != nil {
			t.Fatal(err)
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names
	}
	eventually(t, "cache to know the pod", func() bool { return len(fromCache()) == 1 })

	s.transformer.setFailing(true)
	declared := Indexes{Fields: []string{"spec.nodeName"}, Trigger: Trigger{Field: "spec.nodeName"}}
	lists := s.metrics.Counts(podResource())[Request{CallerCache, OperationList}]
	source.change(declared)
	eventually(t, "new cache to have tried twice", func() bool {
		return s.metrics.Counts(podResource())[Request{CallerCache, OperationList}] >= lists+2
	})
	if diff := cmp.Diff([]string{"web"}, fromCache()); diff != "" {
		t.Errorf("list while the new cache cannot be filled (-want +got):\n%s", diff)
	}
	if inService(s.Interface, declared) {
		t.Error("a cache that is not filled is in service")
	}
	s.transformer.setFailing(false)
	eventually(t, "declared indexes to be in service", func() bool { return inService(s.Interface, declared) })
	if diff := cmp.Diff([]string{"web"}, fromCache()); diff != "" {
		t.Errorf("list after the change (-want +got):\n%s", diff)
	}
}

// TestRedeclaringLeavesNothingBehind changes the indexes, also while the storage
// is destroyed, and looks for what is left.
func TestRedeclaringLeavesNothingBehind(t *testing.T) {
	endpoints, running := warmEtcd(t)
	source := &changingIndexes{}
	s, destroy, err := decorate(Config{WatchCache: true, Indexes: source}, backend(t, endpoints))
	if err != nil {
		t.Fatal(err)
	}
	defer destroy()
	eventually(t, "storage to be ready", func() bool { return s.ReadinessCheck() == nil })
	declared := Indexes{Labels: []string{"app"}, Trigger: Trigger{Label: "app"}}
	source.change(declared)
	eventually(t, "declared indexes to be in service", func() bool { return inService(s, declared) })
	stats, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	createPod(t.Context(), t, s, "web")
	after, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := after.ObjectCount - stats.ObjectCount; got != 1 {
		t.Errorf("object count has grown by %d, want 1", got)
	}
	source.change(Indexes{Labels: []string{"tier"}})
	destroy()
	source.change(Indexes{Labels: []string{"app"}})
	awaitWakeUps(t)
	goleak.VerifyNone(t, running)
}

// awaitWakeUps waits for the goroutines that upstream starts for reads that may have to
// wait for the cache. They end after three seconds, whether or not a read still waits
// (k8s.io/apiserver pkg/storage/cacher/watch_cache.go, waitUntilFreshLocked); goleak waits less.
func awaitWakeUps(t *testing.T) {
	t.Helper()
	eventually(t, "upstream's wake-ups to end", func() bool {
		var running bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&running, 1); err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(running.String(), "waitUntilFreshLocked.func2")
	})
}

func TestWatchesEndWithTheirCache(t *testing.T) {
	source := &changingIndexes{}
	s := newStack(t, cached, stackOptions{source: source})
	created := createPod(t.Context(), t, s, "web")
	watched, err := s.Watch(t.Context(), podPrefix, storage.ListOptions{ResourceVersion: created.ResourceVersion, Predicate: storage.Everything, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	source.change(Indexes{Labels: []string{"app"}})
	if event, ok := <-watched.ResultChan(); ok {
		t.Errorf("got %v, want the watch to end without an event", event)
	}
	// A client goes on from where it was.
	again, err := s.Watch(t.Context(), podPrefix, storage.ListOptions{ResourceVersion: created.ResourceVersion, Predicate: storage.Everything, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	createPod(t.Context(), t, s, "db")
	if event := <-again.ResultChan(); event.Type != watch.Added {
		t.Errorf("got %v, want the pod that was created after the change", event)
	}
}

// TestCallsEndOnTheirCache replaces a cache that a list is waiting for.
func TestCallsEndOnTheirCache(t *testing.T) {
	source := &changingIndexes{}
	s := newStack(t, cached, stackOptions{source: source})
	created := createPod(t.Context(), t, s, "web")
	revision, err := s.Versioner().ParseResourceVersion(created.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	progress := Request{CallerCache, OperationWatchProgress}
	before := s.metrics.Counts(podResource())[progress]
	list, done := &example.PodList{}, make(chan error, 1)
	go func() {
		done <- s.GetList(t.Context(), podPrefix, storage.ListOptions{
			ResourceVersion: strconv.FormatUint(revision+1, 10), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			Predicate: storage.Everything, Recursive: true,
		}, list)
	}()
	eventually(t, "list to wait for its cache", func() bool { return s.metrics.Counts(podResource())[progress] > before })
	declared := Indexes{Labels: []string{"app"}}
	source.change(declared)
	eventually(t, "declared indexes to be in service", func() bool { return inService(s.Interface, declared) })
	select {
	case err := <-done:
		t.Fatalf("the list ended with its cache: %v", err)
	default:
	}
	createPod(t.Context(), t, s, "db")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := len(list.Items); got != 2 {
		t.Errorf("got %d pods, want 2", got)
	}
}

func TestIndexesAreLimited(t *testing.T) {
	known := func(runtime.Object) (labels.Set, fields.Set, error) {
		set := fields.Set{nameField: "", namespaceField: ""}
		for i := range 10 {
			set["spec.f"+strconv.Itoa(i)] = ""
		}
		return nil, set, nil
	}
	for name, tc := range map[string]struct {
		declared    Indexes
		wantFields  []string
		wantLabels  []string
		wantTrigger Trigger
		wantDropped []string
	}{
		"nothing": {},
		"a field that the version does not have": {
			declared: Indexes{Fields: []string{"spec.f1", "spec.gone"}, Trigger: Trigger{Field: "spec.gone"}}, wantFields: []string{"spec.f1"},
		},
		"the trigger counts once": {
			declared:   Indexes{Labels: []string{"a", "b"}, Trigger: Trigger{Label: "b"}},
			wantLabels: []string{"b", "a"}, wantTrigger: Trigger{Label: "b"},
		},
		"labels before fields, the trigger before all": {
			declared: Indexes{
				Fields: []string{"spec.f0", "spec.f1", "spec.f2"}, Labels: []string{"a", "b", "c", "d", "e", "f", "g", "h"}, Trigger: Trigger{Field: "spec.f2"},
			},
			wantFields: []string{"spec.f2"}, wantLabels: []string{"a", "b", "c", "d", "e", "f", "g"}, wantTrigger: Trigger{Field: "spec.f2"},
			wantDropped: []string{"h", "spec.f0", "spec.f1"},
		},
		"no list reads an index of the namespace": {
			declared: Indexes{Trigger: Trigger{Field: namespaceField}}, wantTrigger: Trigger{Field: namespaceField},
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, dropped := newIndexSet(tc.declared, known, newGadget())
			got := []any{set.fields, set.labels, set.trigger, dropped}
			want := []any{tc.wantFields, tc.wantLabels, tc.wantTrigger, tc.wantDropped}
			for i := range want {
				if diff := cmp.Diff(want[i], got[i], equateEmpty()); diff != "" {
					t.Errorf("part %d (-want +got):\n%s", i, diff)
				}
			}
			if len(set.fields)+len(set.labels) > MaxIndexes {
				t.Errorf("got %d indexes", len(set.fields)+len(set.labels))
			}
		})
	}
}

func equateEmpty() cmp.Option {
	return cmp.FilterValues(func(a, b []string) bool { return len(a) == 0 && len(b) == 0 }, cmp.Comparer(slices.Equal[[]string]))
}
