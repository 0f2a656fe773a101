// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func clientKey(client string) key { return key{client: client, verb: "list", resource: "gadgets"} }

func clientsOf(table *table) []string {
	rows, _ := table.snapshot()
	var clients []string
	for _, r := range rows {
		clients = append(clients, r.key.client)
	}
	return clients
}

func TestTableIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	table := newTable(3, now)
	for _, client := range []string{"a", "b", "c", "a", "d", "e"} {
		table.touch(clientKey(client), now)
	}
	// b and c were not seen for the longest time, and none has cost anything.
	if diff := cmp.Diff([]string{"e", "d", "a"}, clientsOf(table)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if rows, dropped := table.size(); rows != 3 || dropped != 2 {
		t.Errorf("got %d rows and %d dropped, want 3 and 2", rows, dropped)
	}
}

func TestTheLeastUsedRowIsDropped(t *testing.T) {
	tests := map[string]struct {
		use  func(first, second *row)
		want string
	}{
		"that was not seen for the longest time":            {use: func(*row, *row) {}, want: "first"},
		"that scanned the least":                            {use: func(first, second *row) { first.add(5, 0, 0); second.add(4, 4, 900) }, want: "second"},
		"that sent the least of those that scanned as much": {use: func(first, second *row) { first.add(5, 0, 2); second.add(5, 0, 1) }, want: "second"},
		"without a running watch":                           {use: func(first, second *row) { first.running.Add(1); second.add(100, 100, 100) }, want: "second"},
		"one of two with running watches":                   {use: func(first, second *row) { first.running.Add(1); second.running.Add(2); first.add(0, 0, 1) }, want: "second"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			table := newTable(2, now)
			first, second := table.touch(clientKey("first"), now), table.touch(clientKey("second"), now)
			tc.use(first, second)
			table.touch(clientKey("third"), now)
			left := map[string]bool{}
			for _, client := range clientsOf(table) {
				left[client] = true
			}
			if left[tc.want] || len(left) != 2 || !left["third"] {
				t.Errorf("got rows %v, want %s dropped", left, tc.want)
			}
		})
	}
}

// TestAFloodLeavesTheWorstClient checks that a client which cannot be missed stays
// in the table, however many others are seen once.
func TestAFloodLeavesTheWorstClient(t *testing.T) {
	now := time.Unix(1000, 0)
	table := newTable(100, now)
	table.touch(clientKey("worst"), now).add(1_000_000, 1, 1)
	for i := range 10_000 {
		table.touch(clientKey(fmt.Sprint(i)), now).add(10, 10, 1000)
	}
	if rows, dropped := table.size(); rows != 100 || dropped != 9901 {
		t.Errorf("got %d rows and %d dropped, want 100 and 9901", rows, dropped)
	}
	if got := table.touch(clientKey("worst"), now).scanned.Load(); got != 1_000_000 {
		t.Errorf("got a row that scanned %d", got)
	}
}

func TestARowIsFoundAgain(t *testing.T) {
	first, second := time.Unix(1000, 0), time.Unix(2000, 0)
	table := newTable(10, first)
	created := table.touch(clientKey("a"), first)
	if table.touch(clientKey("a"), second) != created {
		t.Error("a second row of the same key")
	}
	if table.touch(clientKey("b"), second) == created {
		t.Error("the row of another key")
	}
	if got := created.profile().Profile.LastSeen.Time; !got.Equal(second) {
		t.Errorf("last seen: got %v, want %v", got, second)
	}
	if got := created.profile().CreationTimestamp.Time; !got.Equal(first) {
		t.Errorf("first seen: got %v, want %v", got, first)
	}
}

func TestTableIsSafeForConcurrentUse(t *testing.T) {
	table := newTable(8, time.Unix(1000, 0))
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 1000 {
				r := table.touch(clientKey(fmt.Sprint(i%20)), time.Unix(int64(i), 0))
				r.running.Add(1)
				r.add(1, 1, 1)
				r.running.Add(-1)
				if i%100 == 0 {
					table.snapshot()
				}
			}
		})
	}
	group.Wait()
	if rows, _ := table.size(); rows != 8 {
		t.Errorf("got %d rows, want 8", rows)
	}
}
