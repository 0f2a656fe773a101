// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// seatsMetric is upstream's histogram of what requests were reckoned to cost.
const seatsMetric = "apiserver_flowcontrol_work_estimated_seats"

// TestSeats reads from the metrics of annex what lists are reckoned to cost: as much as the objects that they
// go through, not as all that there are.
func TestSeats(t *testing.T) {
	ctx := testContext(t)
	c := newClient(t, direct(t, seats))
	waitLevel(ctx, t, newClient(t, direct(t, quiet)))
	for name, tc := range map[string]struct {
		query string
		path  string
		// upstream is what kube-apiserver reckons, from all objects of the resource.
		upstream, want int
	}{
		"all from the cache":                       {path: allGadgets, upstream: 10, want: 10},
		"three of a colour by an index":            {path: allGadgets, query: "fieldSelector=spec.color%3D" + rare, upstream: 10, want: 1},
		"none of a colour by an index":             {path: allGadgets, query: "fieldSelector=spec.color%3Dnone", upstream: 10, want: 1},
		"one of a colour that many have":           {path: allGadgets, query: "fieldSelector=spec.color%3Dblue", upstream: 10, want: 10},
		"two in a namespace":                       {path: "/apis/lab.annex.test/v1/namespaces/" + few + "/gadgets", upstream: 10, want: 1},
		"a page":                                   {path: allGadgets, query: "limit=3", upstream: 1, want: 1},
		"a page of which the server does not know": {path: allGadgets, query: "limit=4&labelSelector=unknown", upstream: 1, want: 10},
		"one by name":                              {path: allGadgets, query: "fieldSelector=metadata.name%3Dg-00001", upstream: 1, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			// The size of the objects is learned when the first list asks for it.
			var got int
			for {
				got = c.seatsOf(ctx, t, tc.path+"?"+tc.query)
				if got == tc.want || ctx.Err() != nil {
					break
				}
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
			if got != tc.want {
				t.Errorf("got %d seats, want %d; upstream reckons %d", got, tc.want, tc.upstream)
			}
		})
	}
}

// seatsOf runs a list and returns what it was reckoned to cost.
func (c *client) seatsOf(ctx context.Context, t *testing.T, path string) int {
	t.Helper()
	admin := newClient(t, direct(t, "admin", "system:masters"))
	sumBefore, countBefore := admin.seatsMetric(ctx, t)
	got := c.mustDo(ctx, t, http.MethodGet, path, nil)
	if got.code != http.StatusOK {
		t.Fatalf("GET %s: %d %.200s", path, got.code, got.body)
	}
	sum, count := admin.seatsMetric(ctx, t)
	if count != countBefore+1 {
		t.Fatalf("%d requests were reckoned, want 1", count-countBefore)
	}
	return sum - sumBefore
}

// seatsMetric returns how many seats the requests of the user seats were reckoned to cost, and how many there were.
func (c *client) seatsMetric(ctx context.Context, t *testing.T) (sum, count int) {
	t.Helper()
	got := c.mustDo(ctx, t, http.MethodGet, "/metrics", nil)
	lines := bufio.NewScanner(strings.NewReader(string(got.body)))
	for lines.Scan() {
		line := lines.Text()
		if !strings.Contains(line, `flow_schema="`+seats+`"`) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		switch {
		case strings.HasPrefix(line, seatsMetric+"_sum"):
			sum = int(value)
		case strings.HasPrefix(line, seatsMetric+"_count"):
			count = int(value)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return sum, count
}
