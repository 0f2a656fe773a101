// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"container/list"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// candidates is how many rows are looked at when one has to make room.
const candidates = 16

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

// row is what the reads of one key have cost. Numbers go on being added without a lock.
type row struct {
	key   key
	first time.Time

	count, failed, scanned, returned, bytes atomic.Int64
	// lastSeen is a time in nanoseconds since 1970.
	lastSeen atomic.Int64
	// running is the number of watches that go on.
	running atomic.Int64
}

func (r *row) add(scanned, returned, bytes int64) {
	r.count.Add(1)
	r.scanned.Add(scanned)
	r.returned.Add(returned)
	r.bytes.Add(bytes)
}

// isUsedLess orders rows by how much would be missed without them.
func (r *row) isUsedLess(than *row) bool {
	if watched := r.running.Load() > 0; watched != (than.running.Load() > 0) {
		return !watched
	}
	if scanned, other := r.scanned.Load(), than.scanned.Load(); scanned != other {
		return scanned < other
	}
	return r.bytes.Load() < than.bytes.Load()
}

// table is a bounded number of rows. Of the 16 that were not seen for the longest
// time the one that is used the least makes room for a new one: no watch goes on, it has
// scanned the least, then sent the least. So a flood of new names does not drive out
// the row of a client that costs much, and one that cost much long ago does not stay
// in the way of others for good.
//
// What a watch sends after its row was dropped is in the metrics only.
type table struct {
	limit int
	since time.Time

	lock sync.Mutex
	// order has the rows, the one seen last in front. rows finds them.
	order   *list.List
	rows    map[key]*list.Element
	dropped int64
}

func newTable(limit int, since time.Time) *table {
	return &table{limit: max(limit, 1), since: since, order: list.New(), rows: map[key]*list.Element{}}
}

// touch returns the row of a key and makes it the one that was seen last.
func (t *table) touch(k key, now time.Time) *row {
	t.lock.Lock()
	defer t.lock.Unlock()
	element, ok := t.rows[k]
	if ok {
		t.order.MoveToFront(element)
	} else {
		if len(t.rows) >= t.limit {
			t.dropLocked()
		}
		k = k.clone()
		element = t.order.PushFront(&row{key: k, first: now})
		t.rows[k] = element
	}
	found := rowOf(element)
	found.lastSeen.Store(now.UnixNano())
	return found
}

// dropLocked makes room for one row.
func (t *table) dropLocked() {
	least := t.order.Back()
	for candidate, n := least.Prev(), 1; candidate != nil && n < candidates; candidate, n = candidate.Prev(), n+1 {
		if rowOf(candidate).isUsedLess(rowOf(least)) {
			least = candidate
		}
	}
	delete(t.rows, rowOf(least).key)
	t.order.Remove(least)
	t.dropped++
}

// snapshot returns all rows, and how many were dropped so far.
func (t *table) snapshot() (rows []*row, dropped int64) {
	t.lock.Lock()
	defer t.lock.Unlock()
	rows = make([]*row, 0, len(t.rows))
	for element := t.order.Front(); element != nil; element = element.Next() {
		rows = append(rows, rowOf(element))
	}
	return rows, t.dropped
}

func (t *table) size() (rows int, dropped int64) {
	t.lock.Lock()
	defer t.lock.Unlock()
	return len(t.rows), t.dropped
}

func rowOf(element *list.Element) *row {
	return element.Value.(*row)
}
