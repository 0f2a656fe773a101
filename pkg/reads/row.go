// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"cmp"
	"container/heap"
	"strings"
	"sync/atomic"
	"time"
)

// row is what the reads of one key have cost. Numbers go on being added without a lock.
type row struct {
	counts

	key key
	// first and lastSeen are times in nanoseconds since 1970.
	first, lastSeen atomic.Int64
	// running is the number of watches that go on.
	running atomic.Int64
	// version is that of the client which was seen last.
	version atomic.Pointer[string]
	// heir gets what is added after the row was dropped.
	heir atomic.Pointer[row]

	// The rest is under the lock of the table.

	// bar is that of the table when the row was seen last, touched counts these times.
	bar, touched int64
	// stood is where the row was when the order last looked, position its place in the order.
	stood    standing
	position int
}

func newRow(k key, now time.Time) *row {
	r := &row{key: k}
	r.first.Store(now.UnixNano())
	return r
}

// add counts one read.
func (r *row) add(failed bool, scanned, returned, bytes int64) {
	r.counts.add(failed, scanned, returned, bytes)
	r.settle()
}

// sent adds to the size of an answer that goes on.
func (r *row) sent(bytes int64) {
	r.bytes.Add(bytes)
	r.settle()
}

// settle hands over to the heir. It comes after every change, as the drop of a row
// moves what there is after it has set the heir: one of both sees the change.
func (r *row) settle() {
	if heir := r.heir.Load(); heir != nil {
		r.moveTo(&heir.counts)
	}
}

func (r *row) setClientVersion(version string) {
	if version != r.clientVersion() {
		version = strings.Clone(version)
		r.version.Store(&version)
	}
}

func (r *row) clientVersion() string {
	if version := r.version.Load(); version != nil {
		return *version
	}
	return ""
}

const (
	// bytesPerObject and readsPerObject say how much of them counts as one scanned object.
	bytesPerObject = 1024
	// runningCost keeps the row of a watch that goes on but has sent little, in scanned objects.
	runningCost = 1000
)

// cost is how much would be missed without the row, in scanned objects.
func (r *row) cost() int64 {
	cost := r.scanned.Load() + r.bytes.Load()/bytesPerObject + r.reads.Load()
	if r.running.Load() > 0 {
		cost += runningCost
	}
	return cost
}

// standing is where a row is among others. Of two of one height the one seen last is above.
type standing struct{ height, touched int64 }

// stands must be called with the lock of the table.
func (r *row) stands() standing {
	return standing{height: r.bar + r.cost(), touched: r.touched}
}

var _ heap.Interface = &ranking{}

// ranking is a heap, the lowest row first.
type ranking []*row

// Len implements heap.Interface.
func (r *ranking) Len() int { return len(*r) }

// Less implements heap.Interface.
func (r *ranking) Less(i, j int) bool {
	a, b := (*r)[i].stood, (*r)[j].stood
	return cmp.Or(cmp.Compare(a.height, b.height), cmp.Compare(a.touched, b.touched)) < 0
}

// Swap implements heap.Interface.
func (r *ranking) Swap(i, j int) {
	(*r)[i], (*r)[j] = (*r)[j], (*r)[i]
	(*r)[i].position, (*r)[j].position = i, j
}

// Push implements heap.Interface.
func (r *ranking) Push(added any) {
	last := added.(*row) //nolint:forcetypeassert // the table adds nothing else
	last.position = len(*r)
	*r = append(*r, last)
}

// Pop implements heap.Interface.
func (r *ranking) Pop() any {
	last := len(*r) - 1
	removed := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return removed
}
