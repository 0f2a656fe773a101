// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kubeannex/annex/test/env/testetcd"
)

// burst lets two writers write while lists are compared at the revisions of their answers. A
// byte stands for what each of them does: how much that is must not depend on
// how fast the others are, or the rest of the program could not be repeated.
func (w *twins) burst(ctx context.Context, t testing.TB, d *dice) {
	t.Helper()
	seed := uint64(d.pick(256))
	lists := &dice{data: randomBytes(seed, 10_000)}
	w.compareDuring(ctx, t, lists, func(parity int, _ *atomic.Int64) {
		own := &dice{data: randomBytes(seed<<1+uint64(parity)+1000, 100)}
		for !own.empty() && !t.Failed() {
			w.write(ctx, t, own, oneOf(own, w.plain, w.indexed), parity)
		}
	})
}

// compareDuring compares lists while two writers write, and returns how many.
func (w *twins) compareDuring(ctx context.Context, t testing.TB, d *dice, write func(parity int, compared *atomic.Int64)) (compared int64) {
	t.Helper()
	writing, over := context.WithCancel(ctx)
	var writers sync.WaitGroup
	var count atomic.Int64
	for parity := range 2 {
		writers.Go(func() { write(parity, &count) })
	}
	// A failed comparison leaves before they are done, and they must not outlive the test.
	defer writers.Wait()
	go func() { writers.Wait(); over() }()
	for writing.Err() == nil {
		w.compareAtRevision(t, d)
		w.compareAnyState(ctx, t, d)
		count.Add(1)
	}
	return count.Load()
}

// TestIndexesDuringWrites lists through the indexes while others write, and
// compares each answer with the unindexed one of the same revision.
func TestIndexesDuringWrites(t *testing.T) {
	for name, compact := range map[string]bool{"plain objects": false, "compact objects": true} {
		t.Run(name, func(t *testing.T) {
			client := testetcd.Run(t, nil)
			d := &dice{data: randomBytes(1, 1_000_000)}
			w := newTwinsOf(t, client, gadgetIndexes(Trigger{Label: teamLabel}), compact)
			var observers []*observer
			for range 40 {
				observers = append(observers, w.observe(t.Context(), t, d)...)
			}
			compared := w.compareDuring(t.Context(), t, d, func(parity int, compared *atomic.Int64) {
				own := &dice{data: randomBytes(uint64(parity+10), 1_000_000)}
				// On a busy machine lists fall behind.
				for i := 0; i < 300 || compared.Load() < 50 && i < 3000; i++ {
					w.write(t.Context(), t, own, oneOf(own, w.plain, w.indexed), parity)
				}
			})
			if compared < 50 {
				t.Errorf("compared only %d latest lists and as many cached ones with the writes, want at least 50", compared)
			}
			for _, o := range observers {
				o.check(t, w)
			}
		})
	}
}

// compareAtRevision lists through the indexes and then, without, at the revision of the answer.
func (w *twins) compareAtRevision(t testing.TB, d *dice) {
	t.Helper()
	opts := storage.ListOptions{Recursive: true, Predicate: d.predicate(t)}
	opts.Predicate.Limit = int64(oneOf(d, 0, 1, 2, 3))
	q := query{key: w.prefix + oneOf(d, "", "a/", "b/"), opts: opts}
	q.compareExact(t.Context(), t, listOf(t.Context(), w.indexed, q.key, opts), w.plain)
}

// compareAnyState lists at resourceVersion 0, which caches answer without asking etcd.
//
// Two caches that are asked at once need not be equally far, so the answers of both may differ. But each
// names its revision, and there is one state at a revision: the other storage must have the
// same objects at exactly that one. It is asked without the limit, which caches ignore at
// resourceVersion 0. Nor does a cache go back: what it answers next is no older.
func (w *twins) compareAnyState(ctx context.Context, t testing.TB, d *dice) {
	t.Helper()
	opts := storage.ListOptions{Recursive: true, Predicate: d.predicate(t), ResourceVersion: "0", ResourceVersionMatch: oneOf(d, "", metav1.ResourceVersionMatchNotOlderThan)}
	opts.Predicate.Limit = int64(oneOf(d, 0, 1, 3))
	q := query{key: w.prefix + oneOf(d, "", "a/", "b/"), opts: opts}
	asked, other := w.indexed, w.plain
	if d.pick(4) == 3 {
		asked, other = other, asked
	}
	first, next := listOf(ctx, asked, q.key, q.opts), listOf(ctx, asked, q.key, q.opts)
	if first.revision(t) > next.revision(t) {
		t.Fatalf("%s is answered at resourceVersion %q first and then at %q, want none that is older", q, first.ResourceVersion, next.ResourceVersion)
	}
	q.opts.Predicate.Limit = 0
	q.compareExact(ctx, t, next, other)
}

// revision is that of the state which the answer shows.
func (a answer) revision(t testing.TB) uint64 {
	t.Helper()
	revision, err := strconv.ParseUint(a.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatalf("list is answered at resourceVersion %q: %v %s", a.ResourceVersion, err, a.Error)
	}
	return revision
}

// compareExact asks another storage for the state at the revision of an answer.
func (q query) compareExact(ctx context.Context, t testing.TB, got answer, other storage.Interface) {
	t.Helper()
	exact := q.opts
	exact.ResourceVersion, exact.ResourceVersionMatch = got.ResourceVersion, metav1.ResourceVersionMatchExact
	want := listOf(ctx, other, q.key, exact)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-the other storage at the same revision +got):\n%s", q, diff)
	}
}
