// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"container/heap"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// key is what makes reads one row. What clients choose in it is bounded.
type key struct {
	client, user, verb, group, version, resource, selector string

	source kubeannex.ListSource
	index  string
}

// clone keeps a row from holding on to the header or URL that its key was cut out of.
func (k key) clone() key {
	for _, text := range []*string{&k.client, &k.user, &k.verb, &k.group, &k.version, &k.resource, &k.selector, &k.index} {
		*text = strings.Clone(*text)
	}
	return k
}

// othersClient is the client of the rows that add up dropped ones. No client can call
// itself so: clientOf cuts at the bracket.
const othersClient = "(others)"

// others is the row that takes what the row of a key has when that is dropped.
func (k key) others() key {
	return key{client: othersClient, verb: k.verb, group: k.group, version: k.version, resource: k.resource}
}

// table is a bounded number of rows. When a new one needs room the least used row is
// dropped: what it has cost and how long ago it was seen are weighed nearly as in the
// replacement policy GreedyDual. A row stands at the bar of the table when it
// is seen, plus its cost. The lowest one goes, and the bar rises by what that has cost,
// divided by the places of the table. So a flood of cheap rows drops its own, until
// what was dropped since a row was last seen is as much as that row has cost for each
// place of the table. GreedyDual itself raises the bar to where the lowest row stood:
// a flood that has one place to come and go, as all others have cost more, would
// drive out each of those as soon as it has cost as much as that one alone.
//
// What a dropped row has, and what a watch of it sends later, is added to a row of
// the others, one for each verb and resource, beyond the limit.
type table struct {
	limit int
	since time.Time

	lock sync.Mutex
	rows map[key]*row
	// order has the rows, the one that stood the lowest when it was looked at in front.
	order  ranking
	others map[key]*row
	// spent is what all dropped rows have cost.
	spent   int64
	touches int64
	dropped int64
}

func newTable(limit int, since time.Time) *table {
	return &table{limit: max(limit, 1), since: since, rows: map[key]*row{}, others: map[key]*row{}}
}

// touch returns the row of a key and makes it the one that was seen last. Of a new
// key the row is in the table if its resource is there still, which is asked under the
// lock that forget takes after it went.
func (t *table) touch(k key, version string, now time.Time, exists func() bool) *row {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.touches++
	found, ok := t.rows[k]
	if !ok {
		found = newRow(k.clone(), now)
		if exists() {
			t.insertLocked(found)
		}
	}
	found.bar, found.touched = t.barLocked(), t.touches
	found.lastSeen.Store(now.UnixNano())
	found.setClientVersion(version)
	return found
}

func (t *table) insertLocked(r *row) {
	if len(t.rows) >= t.limit {
		t.dropLocked()
	}
	r.bar, r.touched = t.barLocked(), t.touches
	r.stood = r.stands()
	t.rows[r.key] = r
	heap.Push(&t.order, r)
}

// barLocked is where a row stands that is seen now and has cost nothing.
func (t *table) barLocked() int64 { return t.spent / int64(t.limit) }

// watchEnded takes one from the running watches of a row. It is all that lets one
// sink, and the order expects rows to rise.
func (t *table) watchEnded(r *row) {
	if r.running.Add(-1) > 0 {
		return
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	// It may have been dropped or forgotten meanwhile.
	if t.rows[r.key] == r {
		r.stood = r.stands()
		heap.Fix(&t.order, r.position)
	}
}

// dropLocked makes room for one row.
func (t *table) dropLocked() {
	// Rows rise without a change of the order: the first may not be the lowest any more.
	for {
		stands := t.order[0].stands()
		if stands == t.order[0].stood {
			break
		}
		t.order[0].stood = stands
		heap.Fix(&t.order, 0)
	}
	//nolint:forcetypeassert // it has nothing else
	least := heap.Pop(&t.order).(*row)
	delete(t.rows, least.key)
	t.dropped++
	t.spent += least.cost()
	into := least.key.others()
	others, ok := t.others[into]
	if !ok {
		others = &row{key: into}
		others.first.Store(least.first.Load())
		t.others[into] = others
	}
	others.first.Store(min(others.first.Load(), least.first.Load()))
	others.lastSeen.Store(max(others.lastSeen.Load(), least.lastSeen.Load()))
	least.heir.Store(others)
	least.settle()
}

// forget removes the rows of a resource and its subresources that are not declared
// any more, which is asked under the lock. They do not count as dropped.
func (t *table) forget(resource schema.GroupResource, declared Declared) {
	t.lock.Lock()
	defer t.lock.Unlock()
	maps.DeleteFunc(t.others, func(k key, _ *row) bool { return isGone(k.group, k.version, k.resource, resource, declared) })
	t.order = slices.DeleteFunc(t.order, func(r *row) bool {
		gone := isGone(r.key.group, r.key.version, r.key.resource, resource, declared)
		if gone {
			delete(t.rows, r.key)
		}
		return gone
	})
	for i, r := range t.order {
		r.position = i
	}
	heap.Init(&t.order)
}

// snapshot returns all rows, those of the others too, and how many were dropped so far.
func (t *table) snapshot() (rows []*row, dropped int64) {
	t.lock.Lock()
	defer t.lock.Unlock()
	rows = slices.AppendSeq(make([]*row, 0, len(t.rows)+len(t.others)), maps.Values(t.rows))
	return slices.AppendSeq(rows, maps.Values(t.others)), t.dropped
}

func (t *table) size() (rows int, dropped int64) {
	t.lock.Lock()
	defer t.lock.Unlock()
	return len(t.rows) + len(t.others), t.dropped
}
