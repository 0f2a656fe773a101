// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/client/v3/kubernetes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kubeannex/annex/test/env/testetcd"
)

// patience is how long an event may take.
const patience = 10 * time.Second

// twins are an indexed and an unindexed storage over the same keys.
type twins struct {
	prefix  string
	indexed storage.Interface
	plain   storage.Interface

	lock    sync.Mutex
	changes []change
}

// change is one write, as the history of etcd has it. before and after are nil
// where there is no object.
type change struct {
	revision      uint64
	before, after *unstructured.Unstructured
}

func newTwins(t testing.TB, client *kubernetes.Client, indexes Indexes) *twins {
	t.Helper()
	unique := make([]byte, 8)
	rand.Read(unique)
	prefix := "/gadgets-" + hex.EncodeToString(unique) + "/"
	return &twins{
		prefix:  prefix,
		indexed: openGadgets(t, client, prefix, staticIndexes{indexes}),
		plain:   openGadgets(t, client, prefix, nil),
	}
}

func (w *twins) key(namespace, name string) string { return w.prefix + namespace + "/" + name }

// write creates, changes or deletes one object. It is the only writer of the
// objects of its namespace with its parity of names.
func (w *twins) write(ctx context.Context, t testing.TB, d *dice, store storage.Interface, parity int) {
	t.Helper()
	namespace, name := oneOf(d, "a", "ab", "b"), "n"+strconv.Itoa(2*d.pick(6)+parity)
	next := d.gadget(namespace, name)
	before := newGadget().(*unstructured.Unstructured)
	err := store.Get(ctx, w.key(namespace, name), storage.GetOptions{IgnoreNotFound: true}, before)
	if err != nil {
		t.Error(err)
		return
	}
	made := change{before: before, after: newGadget().(*unstructured.Unstructured)}
	switch exists := before.GetResourceVersion() != ""; {
	case !exists:
		made.before = nil
		err = store.Create(ctx, w.key(namespace, name), next, made.after, 0)
	case d.pick(4) == 0:
		deleted := newGadget().(*unstructured.Unstructured)
		err = store.Delete(ctx, w.key(namespace, name), deleted, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		made.after, made.revision = nil, revisionOf(t, deleted)
	default:
		err = store.GuaranteedUpdate(ctx, w.key(namespace, name), made.after, false, nil,
			func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) { return next, nil, nil }, nil)
	}
	if err != nil {
		t.Error(err)
		return
	}
	if made.after != nil {
		if made.revision = revisionOf(t, made.after); made.before != nil && made.before.GetResourceVersion() == made.after.GetResourceVersion() {
			return // nothing changed
		}
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	w.changes = append(w.changes, made)
}

func revisionOf(t testing.TB, object *unstructured.Unstructured) uint64 {
	t.Helper()
	revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Error(err)
	}
	return revision
}

// answer is everything that a client can tell of a list.
type answer struct {
	Items           []map[string]any
	ResourceVersion string
	Continue        string
	Remaining       *int64
	Error           string
}

func listOf(ctx context.Context, store storage.Interface, key string, opts storage.ListOptions) answer {
	list := newGadgetList().(*unstructured.UnstructuredList)
	if err := store.GetList(ctx, key, opts, list); err != nil {
		return answer{Error: err.Error()}
	}
	got := answer{ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue(), Remaining: list.GetRemainingItemCount()}
	for i := range list.Items {
		got.Items = append(got.Items, list.Items[i].Object)
	}
	return got
}

// compareLists sends one list to both, page by page. The caches must have come to
// rest, as a cache may answer at any revision that it has reached.
func (w *twins) compareLists(ctx context.Context, t testing.TB, d *dice) {
	t.Helper()
	current, err := w.plain.GetCurrentResourceVersion(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w.settle(ctx, t, current)
	opts := storage.ListOptions{Recursive: true, Predicate: d.predicate(t)}
	opts.Predicate.Limit = int64(oneOf(d, 0, 1, 2, 3, 5, 500))
	revision := strconv.FormatUint(current, 10)
	switch d.pick(7) {
	case 1:
		opts.ResourceVersion = "0"
	case 2:
		opts.ResourceVersion = revision
	case 3:
		opts.ResourceVersion, opts.ResourceVersionMatch = revision, metav1.ResourceVersionMatchNotOlderThan
	case 4:
		opts.ResourceVersion, opts.ResourceVersionMatch = revision, metav1.ResourceVersionMatchExact
	case 5:
		opts.ResourceVersion, opts.ResourceVersionMatch = "0", metav1.ResourceVersionMatchNotOlderThan
	case 6:
		opts.ResourceVersion, opts.ResourceVersionMatch = "nonsense", metav1.ResourceVersionMatchExact
	}
	key := w.prefix + oneOf(d, "", "a/", "b/", "ab/", "none/")
	for page := range 100 {
		want, got := listOf(ctx, w.plain, key, opts), listOf(ctx, w.indexed, key, opts)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("page %d of %s with labels %q, fields %q, limit %d, resourceVersion %q %s (-unindexed +indexed):\n%s", page, key,
				opts.Predicate.Label, opts.Predicate.Field, opts.Predicate.Limit, opts.ResourceVersion, opts.ResourceVersionMatch, diff)
		}
		w.checkAgainstChanges(t, key, opts, want, page)
		if want.Continue == "" {
			return
		}
		opts.Predicate.Continue, opts.ResourceVersion, opts.ResourceVersionMatch = want.Continue, "", ""
	}
	t.Fatal("a list of 18 objects has more than 100 pages")
}

// checkAgainstChanges compares a list without pages with what the history of the
// writes says, so that a fault which both storages share is found as well.
func (w *twins) checkAgainstChanges(t testing.TB, key string, opts storage.ListOptions, got answer, page int) {
	t.Helper()
	if got.Error != "" || page > 0 || got.Continue != "" || opts.Predicate.Continue != "" {
		return
	}
	want := 0
	for name, object := range w.state() {
		if len(name) >= len(key) && name[:len(key)] == key && matches(t, opts.Predicate, object) {
			want++
		}
	}
	if len(got.Items) != want {
		t.Fatalf("list of %s with labels %q and fields %q has %d objects, want %d", key, opts.Predicate.Label, opts.Predicate.Field, len(got.Items), want)
	}
}

func (w *twins) state() map[string]*unstructured.Unstructured {
	state := map[string]*unstructured.Unstructured{}
	for _, made := range w.history(0) {
		if made.after == nil {
			delete(state, w.key(made.before.GetNamespace(), made.before.GetName()))
		} else {
			state[w.key(made.after.GetNamespace(), made.after.GetName())] = made.after
		}
	}
	return state
}

// history returns the changes after a revision in their order.
func (w *twins) history(after uint64) []change {
	w.lock.Lock()
	defer w.lock.Unlock()
	sorted := slices.Clone(w.changes)
	slices.SortFunc(sorted, func(a, b change) int { return int(a.revision) - int(b.revision) })
	return slices.DeleteFunc(sorted, func(made change) bool { return made.revision <= after })
}

func matches(t testing.TB, predicate storage.SelectionPredicate, object *unstructured.Unstructured) bool {
	t.Helper()
	if object == nil {
		return false
	}
	ok, err := predicate.Matches(object)
	if err != nil {
		t.Error(err)
	}
	return ok
}

// settle waits until both caches have reached a revision.
func (w *twins) settle(ctx context.Context, t testing.TB, revision uint64) {
	t.Helper()
	for _, store := range []storage.Interface{w.plain, w.indexed} {
		got := listOf(ctx, store, w.prefix, storage.ListOptions{
			ResourceVersion: strconv.FormatUint(revision, 10), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			Predicate: storage.Everything, Recursive: true,
		})
		if got.Error != "" {
			t.Fatal(got.Error)
		}
	}
}

// observer reads a watch with a selector from one storage. Where the cache ends
// the watch, because it is too slow for a busy machine, it watches on as a client does.
type observer struct {
	name      string
	store     storage.Interface
	prefix    string
	scope     string
	predicate storage.SelectionPredicate
	since     uint64
	stop      context.CancelFunc

	lock   sync.Mutex
	events []sighting
}

// open starts the watch where the last one has ended.
func (o *observer) open(ctx context.Context) (watch.Interface, error) {
	revision := strconv.FormatUint(o.since, 10)
	if events := o.seen(); len(events) > 0 {
		revision = events[len(events)-1].ResourceVersion
	}
	return o.store.Watch(ctx, o.prefix+o.scope, storage.ListOptions{ResourceVersion: revision, Predicate: o.predicate, Recursive: true})
}

func (o *observer) read(ctx context.Context, opened watch.Interface) {
	for {
		for event := range opened.ResultChan() {
			o.add(sightingOf(event))
			if event.Type == watch.Error {
				return
			}
		}
		var err error
		if opened, err = o.open(ctx); ctx.Err() != nil {
			return
		} else if err != nil {
			o.add(sighting{Type: watch.Error, ResourceVersion: err.Error()})
			return
		}
	}
}

func (o *observer) add(event sighting) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.events = append(o.events, event)
}

func (o *observer) seen() []sighting {
	o.lock.Lock()
	defer o.lock.Unlock()
	return slices.Clone(o.events)
}

// observe opens the same watch on both storages, from now on.
func (w *twins) observe(ctx context.Context, t testing.TB, d *dice) []*observer {
	t.Helper()
	since, err := w.plain.GetCurrentResourceVersion(ctx)
	if err != nil {
		t.Fatal(err)
	}
	predicate, scope := d.predicate(t), oneOf(d, "", "a/", "b/")
	var observers []*observer
	for name, store := range map[string]storage.Interface{"plain": w.plain, "indexed": w.indexed} {
		watching, stop := context.WithCancel(ctx)
		o := &observer{name: name, store: store, prefix: w.prefix, scope: scope, predicate: predicate, since: since, stop: stop}
		opened, err := o.open(watching)
		if err != nil {
			t.Fatal(err)
		}
		go o.read(watching, opened)
		observers = append(observers, o)
	}
	return observers
}

// sighting is an event as a client sees it.
type sighting struct {
	Type            watch.EventType
	ResourceVersion string
	Object          map[string]any
}

// check compares what the observer has seen with the history of the writes.
func (o *observer) check(t testing.TB, w *twins) {
	t.Helper()
	defer o.stop()
	var want []sighting
	for _, made := range w.history(o.since) {
		object := made.after
		if object == nil {
			object = made.before
		}
		if o.scope != "" && object.GetNamespace()+"/" != o.scope {
			continue
		}
		switch was, is := matches(t, o.predicate, made.before), matches(t, o.predicate, made.after); {
		case was && is:
			want = append(want, sight(watch.Modified, made.after, made.revision))
		case is:
			want = append(want, sight(watch.Added, made.after, made.revision))
		case was:
			want = append(want, sight(watch.Deleted, made.before, made.revision))
		}
	}
	var got []sighting
	// What has not come when time is over is missing in the comparison.
	_ = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true, func(context.Context) (bool, error) {
		got = o.seen()
		return len(got) >= len(want), nil
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("events of the %s storage below %q with labels %q and fields %q (-want +got):\n%s", o.name, o.scope, o.predicate.Label, o.predicate.Field, diff)
	}
}

func sightingOf(event watch.Event) sighting {
	object := event.Object
	if wrapped, ok := object.(runtime.CacheableObject); ok {
		object = wrapped.GetObject()
	}
	if plain, ok := object.(*unstructured.Unstructured); ok {
		return sighting{Type: event.Type, ResourceVersion: plain.GetResourceVersion(), Object: plain.Object}
	}
	return sighting{Type: event.Type, ResourceVersion: fmt.Sprint(object)}
}

// sight is the event of a change: a deletion shows the object before it at the revision of the deletion.
func sight(kind watch.EventType, object *unstructured.Unstructured, revision uint64) sighting {
	shown := object.DeepCopy()
	shown.SetResourceVersion(strconv.FormatUint(revision, 10))
	return sighting{Type: kind, ResourceVersion: shown.GetResourceVersion(), Object: shown.Object}
}

// play lets a program of bytes write, list and watch.
func (w *twins) play(ctx context.Context, t testing.TB, d *dice) {
	t.Helper()
	var observers []*observer
	for !d.empty() && !t.Failed() {
		switch d.pick(4) {
		case 0, 1:
			w.write(ctx, t, d, oneOf(d, w.plain, w.indexed), d.pick(2))
		case 2:
			w.compareLists(ctx, t, d)
		case 3:
			if len(observers) < 16 {
				observers = append(observers, w.observe(ctx, t, d)...)
			}
		}
	}
	for _, o := range observers {
		o.check(t, w)
	}
}

// TestIndexesChangeNoAnswer plays random programs. A failure names the seed.
func TestIndexesChangeNoAnswer(t *testing.T) {
	const programs, together = 60, 6 // most of their time is waiting
	var running sync.WaitGroup
	defer running.Wait()
	for first := range together {
		client := testetcd.Run(t, nil) // the others must not change the revision
		running.Go(func() {
			for seed := uint64(first) + 1; seed <= programs; seed += together {
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					d := &dice{data: randomBytes(seed, 3000)}
					w := newTwins(t, client, gadgetIndexes(d.trigger()))
					w.play(t.Context(), t, d)
				})
			}
		})
	}
}

func randomBytes(seed uint64, n int) []byte {
	source := mathrand.New(mathrand.NewPCG(seed, 0)) //nolint:gosec // to be repeated, not secret
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(source.Uint32())
	}
	return data
}

// TestIndexesDuringWrites lists through the indexes while others write, and
// compares each answer with the unindexed one of the same revision.
func TestIndexesDuringWrites(t *testing.T) {
	client := testetcd.Run(t, nil)
	d := &dice{data: randomBytes(1, 1_000_000)}
	w := newTwins(t, client, gadgetIndexes(Trigger{Label: teamLabel}))
	var observers []*observer
	for range 40 {
		observers = append(observers, w.observe(t.Context(), t, d)...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for parity := range 2 {
		writers.Go(func() {
			own := &dice{data: randomBytes(uint64(parity+10), 1_000_000)}
			for range 600 {
				w.write(t.Context(), t, own, oneOf(own, w.plain, w.indexed), parity)
			}
		})
	}
	go func() { writers.Wait(); cancel() }()
	compared := 0
	for ctx.Err() == nil {
		w.compareAtRevision(t, d)
		compared++
	}
	writers.Wait()
	if compared < 100 {
		t.Errorf("compared only %d lists with the writes, want at least 100", compared)
	}
	for _, o := range observers {
		o.check(t, w)
	}
}

// compareAtRevision lists through the indexes and then, without, at the revision of the answer.
func (w *twins) compareAtRevision(t testing.TB, d *dice) {
	t.Helper()
	opts := storage.ListOptions{Recursive: true, Predicate: d.predicate(t)}
	opts.Predicate.Limit = int64(oneOf(d, 0, 1, 2, 3))
	key := w.prefix + oneOf(d, "", "a/", "b/")
	got := listOf(t.Context(), w.indexed, key, opts)
	opts.ResourceVersion, opts.ResourceVersionMatch = got.ResourceVersion, metav1.ResourceVersionMatchExact
	want := listOf(t.Context(), w.plain, key, opts)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("list of %s with labels %q, fields %q, limit %d (-unindexed at the same revision +indexed):\n%s", key,
			opts.Predicate.Label, opts.Predicate.Field, opts.Predicate.Limit, diff)
	}
}
