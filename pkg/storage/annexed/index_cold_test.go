// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
)

// restart opens the indexed storage anew without a cache, as a server does that is started
// again, and sends it lists at once: the first of them start the cache, and those that etcd
// answers do not wait for it. The observers watch on from where they were.
//
// Nobody writes meanwhile, so the latest state is that at the current revision, and there is
// one right answer whether the cache gives it or etcd.
func (w *twins) restart(ctx context.Context, t testing.TB, d *dice, observers []*observer) {
	t.Helper()
	current := w.currentRevision(ctx, t)
	w.reach(ctx, t, current, w.plain)
	for _, o := range observers {
		o.compare(t, w)
		o.forget(current)
	}
	queries, revisions := make([]query, 1+d.pick(3)), make([]uint64, 3)
	for i := range queries {
		queries[i], revisions[i] = w.coldQuery(t, d, current)
	}
	for i, got := range w.openCold(ctx, t, queries) {
		w.comparePages(ctx, t, queries[i], revisions[i], got)
	}
}

// openCold replaces the indexed storage by a lazy one and returns what that answers first,
// all pages of each list. The observers wait: their watches would start the cache.
func (w *twins) openCold(ctx context.Context, t testing.TB, queries []query) [][]answer {
	t.Helper()
	w.opening.Lock()
	defer w.opening.Unlock()
	w.closeIndexed()
	cold := w.config
	cold.Lazy, cold.Catalog = true, NewCatalog()
	w.indexed, w.closeIndexed = openGadgetsAs(t, w.client, w.prefix, cold)
	answers := make([][]answer, len(queries))
	var asked sync.WaitGroup
	for i, q := range queries {
		asked.Go(func() { answers[i] = pagesOf(ctx, w.indexed, q) })
	}
	asked.Wait()
	// It refuses the observers, with writes between, unless it knows when it was opened.
	opened := cold.Catalog.storages[gadgetResource().WithVersion(gadgetKind().Version)]
	eventually(t, "storage to know its first revision", func() bool {
		opened.lock.RLock()
		defer opened.lock.RUnlock()
		return opened.late.born > 0
	})
	return answers
}

// coldQuery returns a list of the latest state or of an exact revision, and that revision.
// Lists of any state are left out: only a cache ignores their limit, and it need not be there.
func (w *twins) coldQuery(t testing.TB, d *dice, current uint64) (query, uint64) {
	t.Helper()
	opts := storage.ListOptions{Recursive: true, Predicate: d.predicate(t)}
	opts.Predicate.Limit = int64(oneOf(d, 0, 1, 2, 5, 500))
	revision := current
	switch d.pick(5) {
	default:
	case 2:
		opts.ResourceVersion, opts.ResourceVersionMatch = strconv.FormatUint(current, 10), metav1.ResourceVersionMatchNotOlderThan
	case 3:
		opts.ResourceVersion, opts.ResourceVersionMatch = strconv.FormatUint(current, 10), metav1.ResourceVersionMatchExact
	case 4:
		if made := w.history(0); len(made) > 0 {
			revision = made[d.pick(len(made))].revision
		}
		opts.ResourceVersion, opts.ResourceVersionMatch = strconv.FormatUint(revision, 10), metav1.ResourceVersionMatchExact
	}
	return query{key: w.prefix + oneOf(d, "", "a/", "b/", "none/"), opts: opts}, revision
}
