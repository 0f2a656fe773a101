// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
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
	client *kubernetes.Client
	prefix string
	plain  storage.Interface
	// config is that of the indexed storage.
	config Config

	// opening guards the indexed storage, which restart replaces. What runs at other times
	// only needs no lock.
	opening      sync.RWMutex
	indexed      storage.Interface
	closeIndexed func()

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
	return newTwinsOf(t, client, indexes, false)
}

// newTwinsOf returns twins of which the indexed one keeps compact objects or does not. The
// other never does, so that what it answers was not decoded twice.
func newTwinsOf(t testing.TB, client *kubernetes.Client, indexes Indexes, compact bool) *twins {
	t.Helper()
	unique := make([]byte, 8)
	rand.Read(unique)
	w := &twins{
		client: client,
		prefix: "/gadgets-" + hex.EncodeToString(unique) + "/",
		config: Config{WatchCache: true, Compact: compact, Indexes: staticIndexes{indexes}},
	}
	w.indexed, w.closeIndexed = openGadgetsAs(t, client, w.prefix, w.config)
	w.plain = openGadgets(t, client, w.prefix, nil)
	return w
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

// query is a list of all that opts select below key.
type query struct {
	key  string
	opts storage.ListOptions
}

func (q query) String() string {
	return fmt.Sprintf("list of %s with labels %q, fields %q, limit %d, resourceVersion %q %s", q.key,
		q.opts.Predicate.Label, q.opts.Predicate.Field, q.opts.Predicate.Limit, q.opts.ResourceVersion, q.opts.ResourceVersionMatch)
}

const maxPages = 100

// pagesOf sends one list, page by page.
func pagesOf(ctx context.Context, store storage.Interface, q query) []answer {
	var pages []answer
	for range maxPages {
		page := listOf(ctx, store, q.key, q.opts)
		pages = append(pages, page)
		if page.Continue == "" {
			return pages
		}
		q.opts.Predicate.Continue, q.opts.ResourceVersion, q.opts.ResourceVersionMatch = page.Continue, "", ""
	}
	return append(pages, answer{Error: "a list of few objects has more pages than that"})
}

// comparePages holds what the indexed storage has answered, page by page, against the
// unindexed one, and against what was written. The answer must be the state at one revision.
func (w *twins) comparePages(ctx context.Context, t testing.TB, q query, revision uint64, got []answer) {
	t.Helper()
	want := pagesOf(ctx, w.plain, q)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s, by pages (-unindexed +indexed):\n%s", q, diff)
	}
	if len(want) > maxPages {
		t.Fatalf("%s: %s", q, want[maxPages].Error)
	}
	w.checkAgainstChanges(t, q, revision, want[0])
}

// compareLists sends one list to both, page by page. The caches must have come to
// rest, as a cache may answer at any revision that it has reached.
func (w *twins) compareLists(ctx context.Context, t testing.TB, d *dice) {
	t.Helper()
	current := w.currentRevision(ctx, t)
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
	q := query{key: w.prefix + oneOf(d, "", "a/", "b/", "ab/", "none/"), opts: opts}
	w.comparePages(ctx, t, q, current, pagesOf(ctx, w.indexed, q))
}

func (w *twins) currentRevision(ctx context.Context, t testing.TB) uint64 {
	t.Helper()
	current, err := w.plain.GetCurrentResourceVersion(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return current
}

// checkAgainstChanges compares a list without pages with what the history of the writes says
// of its revision, so that a fault which both storages share is found as well.
func (w *twins) checkAgainstChanges(t testing.TB, q query, revision uint64, got answer) {
	t.Helper()
	if got.Error != "" || got.Continue != "" {
		return
	}
	want := 0
	for name, object := range w.stateAt(revision) {
		if strings.HasPrefix(name, q.key) && matches(t, q.opts.Predicate, object) {
			want++
		}
	}
	if len(got.Items) != want {
		t.Fatalf("%s has %d objects, want %d", q, len(got.Items), want)
	}
}

func (w *twins) state() map[string]*unstructured.Unstructured { return w.stateAt(math.MaxUint64) }

func (w *twins) stateAt(revision uint64) map[string]*unstructured.Unstructured {
	state := map[string]*unstructured.Unstructured{}
	for _, made := range w.history(0) {
		if made.revision > revision {
			break
		}
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
	w.reach(ctx, t, revision, w.plain)
	w.reach(ctx, t, revision, w.indexed)
}

func (w *twins) reach(ctx context.Context, t testing.TB, revision uint64, store storage.Interface) {
	t.Helper()
	got := listOf(ctx, store, w.prefix, storage.ListOptions{
		ResourceVersion: strconv.FormatUint(revision, 10), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		Predicate: storage.Everything, Recursive: true,
	})
	if got.Error != "" {
		t.Fatal(got.Error)
	}
}

// observer reads a watch with a selector from one storage. Where the cache ends
// the watch, because it is too slow for a busy machine, or the storage is closed, it
// watches on as a client does.
type observer struct {
	name      string
	store     func() storage.Interface
	prefix    string
	scope     string
	predicate storage.SelectionPredicate
	stop      context.CancelFunc

	lock   sync.Mutex
	since  uint64
	events []sighting
}

// open starts the watch where the last one has ended, on the storage that is open now. It
// tries again where that is closed meanwhile.
func (o *observer) open(ctx context.Context) (watch.Interface, error) {
	for {
		store := o.store()
		opened, err := store.Watch(ctx, o.prefix+o.scope, storage.ListOptions{ResourceVersion: o.reached(), Predicate: o.predicate, Recursive: true})
		if err == nil || ctx.Err() != nil || o.store() == store {
			return opened, err
		}
	}
}

// reached is the revision from which to watch on.
func (o *observer) reached() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	if len(o.events) > 0 {
		return o.events[len(o.events)-1].ResourceVersion
	}
	return strconv.FormatUint(o.since, 10)
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

// add remembers an event.
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

// open returns the indexed storage for what may run while it is replaced.
func (w *twins) open() storage.Interface {
	w.opening.RLock()
	defer w.opening.RUnlock()
	return w.indexed
}

// observe opens the same watch on both storages, from now on.
func (w *twins) observe(ctx context.Context, t testing.TB, d *dice) []*observer {
	t.Helper()
	since := w.currentRevision(ctx, t)
	predicate, scope := d.predicate(t), oneOf(d, "", "a/", "b/")
	var observers []*observer
	for name, store := range map[string]func() storage.Interface{
		"plain":   func() storage.Interface { return w.plain },
		"indexed": w.open,
	} {
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

// check compares what the observer has seen with the history of the writes, and ends its watch.
func (o *observer) check(t testing.TB, w *twins) {
	t.Helper()
	defer o.stop()
	o.compare(t, w)
}

// forget lets the observer watch on from a revision, as a client does that was sent a
// bookmark of it, over a storage that is opened then if it is the indexed one. It must have
// seen all events before.
func (o *observer) forget(revision uint64) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.since, o.events = revision, nil
}

func (o *observer) compare(t testing.TB, w *twins) {
	t.Helper()
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
	// A compact object is itself one, and the cache wraps it once more.
	for wrapped, ok := object.(runtime.CacheableObject); ok; wrapped, ok = object.(runtime.CacheableObject) {
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

// burstStep is the last of the steps between which a program chooses.
const burstStep = 47

// play lets a program of bytes write, list and watch, restart the indexed storage and write
// from two sides while it lists.
func (w *twins) play(ctx context.Context, t testing.TB, d *dice) {
	t.Helper()
	var observers []*observer
	for !d.empty() && !t.Failed() {
		switch step := d.pick(burstStep + 1); {
		case step < 24:
			w.write(ctx, t, d, oneOf(d, w.plain, w.indexed), d.pick(2))
		case step < 35:
			w.compareLists(ctx, t, d)
		case step < 46:
			if len(observers) < 16 {
				observers = append(observers, w.observe(ctx, t, d)...)
			}
		case step < burstStep: // what follows takes ten times as long
			w.restart(ctx, t, d, observers)
		default:
			w.burst(ctx, t, d)
		}
	}
	for _, o := range observers {
		o.check(t, w)
	}
}

// TestIndexesChangeNoAnswer plays random programs, every other one with compact objects. A
// failure names the seed.
func TestIndexesChangeNoAnswer(t *testing.T) {
	const programs, together = 24, 8 // most of their time is waiting
	var running sync.WaitGroup
	defer running.Wait()
	for first := range together {
		client := testetcd.Run(t, nil) // the others must not change the revision
		running.Go(func() {
			for seed := uint64(first) + 1; seed <= programs; seed += together {
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					d := &dice{data: randomBytes(seed, 3000)}
					w := newTwinsOf(t, client, gadgetIndexes(d.trigger()), seed%2 == 0)
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
