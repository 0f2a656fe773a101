// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

func clientKey(client string) key { return key{client: client, verb: "list", resource: "gadgets"} }

func always() bool { return true }

// clientsOf are those that have a row of their own, sorted.
func clientsOf(table *table) []string {
	rows, _ := table.snapshot()
	var clients []string
	for _, r := range rows {
		if r.key.client != othersClient {
			clients = append(clients, r.key.client)
		}
	}
	slices.Sort(clients)
	return clients
}

// read is one read of a client, which has scanned so much.
func (t *table) read(client string, now time.Time, scanned int64) *row {
	r := t.touch(clientKey(client), "v1", now, always)
	r.add(false, scanned, 0, 0)
	return r
}

func TestTableIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	table := newTable(3, now)
	for _, client := range []string{"a", "b", "c", "a", "d", "e"} {
		table.touch(clientKey(client), "", now, always)
	}
	// b and c were not seen for the longest time, and none has cost anything.
	if diff := cmp.Diff([]string{"a", "d", "e"}, clientsOf(table)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	// One of the rows is that of the others.
	if rows, dropped := table.size(); rows != 4 || dropped != 2 {
		t.Errorf("got %d rows and %d dropped, want 4 and 2", rows, dropped)
	}
}

func TestTheLeastUsedRowIsDropped(t *testing.T) {
	tests := map[string]struct {
		use  func(first, second *row)
		want string
	}{
		"that was not seen for the longest time":            {use: func(*row, *row) {}, want: "first"},
		"that scanned the least":                            {use: func(first, second *row) { first.add(false, 5, 0, 0); second.add(false, 4, 4, 900) }, want: "second"},
		"that sent the least of those that scanned as much": {use: func(first, second *row) { first.add(false, 5, 0, 1024); second.add(false, 5, 0, 1023) }, want: "second"},
		"that scanned little but did not send much":         {use: func(first, second *row) { first.add(false, 0, 0, 1<<20); second.add(false, 900, 0, 0) }, want: "second"},
		"without a running watch":                           {use: func(first, second *row) { first.running.Add(1); second.add(false, 100, 100, 100) }, want: "second"},
		"whose watch runs but costs less":                   {use: func(first, second *row) { first.running.Add(1); second.add(false, 5000, 0, 0) }, want: "first"},
		"one of two with running watches":                   {use: func(first, second *row) { first.running.Add(1); second.running.Add(2); first.add(false, 0, 0, 1) }, want: "second"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			table := newTable(2, now)
			first, second := table.touch(clientKey("first"), "", now, always), table.touch(clientKey("second"), "", now, always)
			tc.use(first, second)
			table.touch(clientKey("third"), "", now, always)
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

// TestAFloodLeavesTheWorstClients checks that clients which cannot be missed stay
// in the table, however many others are seen once, and that nothing is lost of those.
func TestAFloodLeavesTheWorstClients(t *testing.T) {
	now := time.Unix(1000, 0)
	table := newTable(100, now)
	for i := range 90 {
		table.read(fmt.Sprintf("worst-%d", i), now, 1_000_000)
	}
	for i := range 10_000 {
		table.read(fmt.Sprint(i), now, 10)
	}
	if rows, dropped := table.size(); rows != 101 || dropped != 9990 {
		t.Errorf("got %d rows and %d dropped, want 101 and 9990", rows, dropped)
	}
	for i := range 90 {
		if got := table.read(fmt.Sprintf("worst-%d", i), now, 0); got.scanned.Load() != 1_000_000 {
			t.Errorf("the row of %s scanned %d", got.key.client, got.scanned.Load())
		}
	}
	rows, _ := table.snapshot()
	var scanned, reads int64
	for _, r := range rows {
		scanned += r.scanned.Load()
		reads += r.reads.Load()
	}
	if scanned != 90_100_000 || reads != 10_180 {
		t.Errorf("all rows have scanned %d in %d reads, want 90100000 in 10180", scanned, reads)
	}
}

// TestAnExpensiveRowGoesAtLast checks that one that cost much long ago makes room
// for clients of now, which cost as much together for each place of the table.
func TestAnExpensiveRowGoesAtLast(t *testing.T) {
	for name, others := range map[string]int64{"among cheap rows": 9, "among rows that cost more": 1_000_000} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			table := newTable(10, now)
			table.read("old", now, 1000)
			// One place is left, that of the newest.
			for i := range 8 {
				table.read(fmt.Sprintf("other-%d", i), now, others)
			}
			reads := 0
			for ; slices.Contains(clientsOf(table), "old"); reads++ {
				if reads > 100_000 {
					t.Fatal("it stays for good")
				}
				table.read(fmt.Sprint(reads), now, 9)
			}
			// Each of the new ones costs 10, the old one about 1000, and there are 10 places.
			if reads < 900 || reads > 1100 {
				t.Errorf("it went after %d reads, want about 1000", reads)
			}
		})
	}
}

// TestANightlyListOutlastsADayOfOneUser checks that a user who makes up clients does
// not drive out one that is seen once a day, where he has one place as all others have cost more.
func TestANightlyListOutlastsADayOfOneUser(t *testing.T) {
	now := time.Unix(1000, 0)
	table := newTable(DefaultRows, now)
	table.read("nightly", now, 1_000_000)
	for i := range DefaultRows - 2 {
		table.read(fmt.Sprintf("worse-%d", i), now, 2_000_000)
	}
	// Three gets a second of an object of 2 KiB cost more than the list when the day is over.
	for i := range 3 * 24 * 60 * 60 {
		table.touch(clientKey(fmt.Sprint(i)), "", now, always).add(false, 1, 1, 2048)
	}
	if got := table.read("nightly", now, 1_000_000).scanned.Load(); got != 2_000_000 {
		t.Errorf("the nightly list scanned %d, want 2000000: it was dropped in between", got)
	}
}

// TestARowThatIsReadOftenStays checks that a client of now is not dropped for one of
// old times that has cost somewhat more.
func TestARowThatIsReadOftenStays(t *testing.T) {
	now := time.Unix(1000, 0)
	table := newTable(10, now)
	for i := range 9 {
		table.read(fmt.Sprintf("old-%d", i), now, 500)
	}
	for i := range 5000 {
		if i%50 == 0 {
			table.read("regular", now, 100)
		}
		table.read(fmt.Sprintf("once-%d", i), now, 5)
	}
	if clients := clientsOf(table); !slices.Contains(clients, "regular") || strings.Contains(strings.Join(clients, " "), "old-") {
		t.Errorf("got rows %v", clients)
	}
}

func TestDroppedRowsAreAddedUp(t *testing.T) {
	first, second := time.Unix(1000, 0), time.Unix(2000, 0)
	table := newTable(1, first)
	a := table.touch(clientKey("a"), "v1", first, always)
	a.add(true, 1, 2, 3)
	get := clientKey("b")
	get.verb = "get"
	table.touch(get, "v1", second, always).add(false, 10, 20, 30)
	table.touch(clientKey("c"), "v1", second, always).add(false, 100, 200, 300)
	// A watch goes on after its row has gone.
	a.sent(4000)
	table.touch(clientKey("d"), "v1", second, always)
	got := map[string]kubeannex.ListProfileRow{}
	for _, item := range (&Tracker{table: table}).Profiles().Items {
		if item.Profile.Client != "(others)" {
			continue
		}
		if item.Profile.Verb == "list" && (item.CreationTimestamp.Unix() != 1000 || item.Profile.LastSeen.Unix() != 2000) {
			t.Errorf("first seen %v, last seen %v", item.CreationTimestamp, item.Profile.LastSeen)
		}
		item.Profile.LastSeen.Time = time.Time{}
		got[item.Profile.Verb] = item.Profile
	}
	want := map[string]kubeannex.ListProfileRow{
		"list": {Client: "(others)", Verb: "list", Resource: "gadgets", Count: 2, Failed: 1, Scanned: 101, Returned: 202, Bytes: 4303},
		"get":  {Client: "(others)", Verb: "get", Resource: "gadgets", Count: 1, Scanned: 10, Returned: 20, Bytes: 30},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("others (-want +got):\n%s", diff)
	}
}

func TestARowIsFoundAgain(t *testing.T) {
	first, second := time.Unix(1000, 0), time.Unix(2000, 0)
	table := newTable(10, first)
	created := table.touch(clientKey("a"), "v1", first, always)
	if table.touch(clientKey("a"), "v2", second, always) != created {
		t.Error("a second row of the same key")
	}
	if table.touch(clientKey("b"), "v1", second, always) == created {
		t.Error("the row of another key")
	}
	if got := created.profile().Profile.LastSeen.Time; !got.Equal(second) {
		t.Errorf("last seen: got %v, want %v", got, second)
	}
	if got := created.profile().Profile.ClientVersion; got != "v2" {
		t.Errorf("the version seen last: got %q, want v2", got)
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
				r := table.touch(clientKey(fmt.Sprint(i%20)), fmt.Sprint(i), time.Unix(int64(i), 0), always)
				r.running.Add(1)
				r.add(false, 1, 1, 1)
				r.sent(1)
				r.running.Add(-1)
				if i%100 == 0 {
					table.snapshot()
				}
			}
		})
	}
	group.Wait()
	if rows, _ := table.size(); rows != 9 {
		t.Errorf("got %d rows, want 9", rows)
	}
	rows, _ := table.snapshot()
	var reads, bytes int64
	for _, r := range rows {
		reads += r.reads.Load()
		bytes += r.bytes.Load()
	}
	if reads != 4000 || bytes != 8000 {
		t.Errorf("got %d reads of %d bytes, want 4000 of 8000", reads, bytes)
	}
}
