// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// gone is a client that has left after some bytes.
type gone struct {
	http.ResponseWriter

	room int
}

func (g *gone) Write(data []byte) (int, error) {
	n := min(len(data), g.room)
	g.room -= n
	if n < len(data) {
		return n, io.ErrClosedPipe
	}
	return n, nil
}

func TestWhatHasFailed(t *testing.T) {
	reading := annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, Scanned: 5, Returned: 5}
	// answers stands for upstream's handlers, which do not tell of an error of Write.
	answers := func(w http.ResponseWriter, req *http.Request) {
		record(req, reading)
		_, _ = fmt.Fprint(w, "0123456789")
	}
	tests := map[string]struct {
		verb      string
		room      int
		cancelled bool
		inner     http.HandlerFunc

		want      int64
		wantBytes int64
	}{
		"nothing": {verb: "list", room: 10, inner: answers, wantBytes: 10},
		"a list whose client leaves in the midst":   {verb: "list", room: 4, inner: answers, want: 1, wantBytes: 4},
		"a get whose client leaves in the midst":    {verb: "get", room: 4, inner: answers, want: 1, wantBytes: 4},
		"a list whose client left and all was sent": {verb: "list", room: 10, cancelled: true, inner: answers, want: 1, wantBytes: 10},
		"a list whose client left before":           {verb: "list", cancelled: true, inner: func(http.ResponseWriter, *http.Request) {}, want: 1},
		"not a watch whose client leaves":           {verb: "watch", room: 4, cancelled: true, inner: answers, wantBytes: 4},
		"a watch whose client left before":          {verb: "watch", cancelled: true, inner: func(http.ResponseWriter, *http.Request) {}, want: 1},
		"a list that panics":                        {verb: "list", inner: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: 1},  //nolint:forbidigo // as upstream's handlers do when a client is gone
		"a watch that panics":                       {verb: "watch", inner: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: 1}, //nolint:forbidigo // the same
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tracker, _ := newTestTracker(10)
			r := request{verb: tc.verb, resource: "gadgets", user: "alice"}
			ctx, cancel := context.WithCancel(r.context(t.Context()))
			defer cancel()
			if tc.cancelled {
				cancel()
			}
			func() {
				defer func() { _ = recover() }()
				tracker.Handler(tc.inner, gadgetsOnly, anyIndex).ServeHTTP(&gone{httptest.NewRecorder(), tc.room}, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			}()
			checkFailed(t, tracker, tc.want)
			if rows := rowsOf(tracker); len(rows) == 1 && rows[0].Bytes != tc.wantBytes {
				t.Errorf("got %d bytes, want %d", rows[0].Bytes, tc.wantBytes)
			}
		})
	}
}

// checkFailed looks at the only row and at the only series.
func checkFailed(t *testing.T, tracker *Tracker, want int64) {
	t.Helper()
	rows := rowsOf(tracker)
	if len(rows) != 1 || rows[0].Count != 1 || rows[0].Failed != want {
		t.Errorf("got rows %v, want one that has failed %d times", rows, want)
	}
	all := tracker.counters.snapshot()
	for s, c := range all {
		if c.reads.Load() != 1 || c.failed.Load() != want {
			t.Errorf("series %v: got %d of %d failed, want %d of 1", s, c.failed.Load(), c.reads.Load(), want)
		}
	}
	if len(all) != 1 {
		t.Errorf("got %d series", len(all))
	}
}

// TestAListThatIsCutOff sends a list through upstream's time limit, which ends
// while the list is being written.
func TestAListThatIsCutOff(t *testing.T) {
	tracker, _ := newTestTracker(10)
	list := request{verb: "list", resource: "gadgets", user: "alice"}
	ctx, cancel := context.WithCancel(list.context(t.Context()))
	defer cancel()
	over, done := make(chan struct{}), make(chan struct{})
	tracked := tracker.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		record(req, annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, Scanned: 5, Returned: 5})
		_, _ = fmt.Fprint(w, "01234")
		cancel()
		<-over
		_, _ = fmt.Fprint(w, "56789")
	}), gadgetsOnly, anyIndex)
	limited := genericfilters.WithTimeout(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer close(done)
		tracked.ServeHTTP(w, req)
	}), func(req *http.Request) (*http.Request, bool, func(), *apierrors.StatusError) {
		return req, false, func() {}, apierrors.NewTimeoutError("too long", 0)
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the answer was not broken off")
			}
		}()
		limited.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	}()
	close(over)
	<-done
	checkFailed(t, tracker, 1)
	if rows := rowsOf(tracker); rows[0].Bytes != 5 || rows[0].Source != kubeannex.ListSourceCache {
		t.Errorf("got row %v", rows[0])
	}
}

func TestForget(t *testing.T) {
	tracker, _ := newTestTracker(2)
	there := true
	served := func(schema.GroupVersionResource, string) bool { return there }
	read := func(resource, subresource string) {
		r := request{verb: "get", resource: resource, subresource: subresource, user: "alice"}
		r.send(r.context(t.Context()), tracker.Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			record(req, annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, Scanned: 1, Returned: 1})
			there = there && resource != "late"
		}), served, anyIndex))
	}
	for _, resource := range []string{"gadgets", "gadgetsets", "others"} {
		read(resource, "")
		read(resource, "status")
	}
	nothing := func(schema.GroupVersionResource, string) bool { return false }
	tracker.Forget(schema.GroupResource{Group: "lab.annex.test", Resource: "gadgets"}, nothing)
	for _, other := range []schema.GroupResource{{Group: "other.test", Resource: "gadgetsets"}, {Group: "lab.annex.test", Resource: "gadget"}} {
		tracker.Forget(other, nothing)
	}
	// Two rows are in the table, four have made room. Of these two were of gadgets.
	resources := map[string]int{}
	for _, row := range rowsOf(tracker) {
		resources[row.Resource]++
	}
	if len(resources) != 4 || resources["gadgets"]+resources["gadgets/status"] != 0 {
		t.Errorf("got rows of %v", resources)
	}
	series := tracker.counters.snapshot()
	for s := range series {
		if s.resource == "gadgets" || s.resource == "gadgets/status" {
			t.Errorf("got series %v", s)
		}
	}
	if len(series) != 4 {
		t.Errorf("got %d series, want 4", len(series))
	}
	if size, order := len(tracker.table.rows), len(tracker.table.order); size != order {
		t.Errorf("got %d rows and %d in their order", size, order)
	}
	// One whose definition goes while it is read leaves nothing that would stay.
	read("late", "")
	if rows := len(rowsOf(tracker)); rows != 4 || len(tracker.counters.snapshot()) != 4 {
		t.Errorf("got %d rows and %d series of what has gone", rows, len(tracker.counters.snapshot()))
	}
}

// TestForgetWhatIsNotDeclared checks that what is left of a resource stays, and that the table is sound afterwards.
func TestForgetWhatIsNotDeclared(t *testing.T) {
	tracker, _ := newTestTracker(8)
	read := func(version, subresource, user string) {
		r := request{verb: "get", resource: "gadgets", subresource: subresource, user: user}
		ctx := r.context(t.Context())
		info, _ := genericapirequest.RequestInfoFrom(ctx)
		info.APIVersion = version
		r.send(ctx, tracker.Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			record(req, annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, Scanned: 1, Returned: 1})
		}), func(schema.GroupVersionResource, string) bool { return true }, anyIndex))
	}
	// The first two make room, so that there are rows of others.
	for _, user := range []string{"dropped", "a", "b", "kept"} {
		read("v1", "", user)
		read("v1beta1", "", user)
	}
	read("v1", "scale", "kept")
	read("v1", "status", "kept")
	tracker.Forget(schema.GroupResource{Group: "lab.annex.test", Resource: "gadgets"}, func(resource schema.GroupVersionResource, subresource string) bool {
		return resource.Version != "v1beta1" && subresource != "scale"
	})
	rows := func() []string {
		var rows []string
		for _, row := range rowsOf(tracker) {
			rows = append(rows, row.User+" "+row.Version+" "+row.Resource)
		}
		slices.Sort(rows)
		return rows
	}
	want := []string{" v1 gadgets", "a v1 gadgets", "b v1 gadgets", "kept v1 gadgets", "kept v1 gadgets/status"}
	if diff := cmp.Diff(want, rows()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	resources := map[string]bool{}
	for s := range tracker.counters.snapshot() {
		resources[s.resource] = true
	}
	if diff := cmp.Diff(map[string]bool{"gadgets": true, "gadgets/status": true}, resources); diff != "" {
		t.Errorf("resources of series (-want +got):\n%s", diff)
	}
	for i, r := range tracker.table.order {
		if r.position != i || tracker.table.rows[r.key] != r {
			t.Errorf("the row of %s is at %d of the order, it has %d", r.key.resource, i, r.position)
		}
	}
	if size, order := len(tracker.table.rows), len(tracker.table.order); size != 4 || order != 4 {
		t.Errorf("got %d rows and %d in their order, want 4", size, order)
	}
}
