// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

func TestMetrics(t *testing.T) {
	tracker, _ := newTestTracker(2)
	registry := metrics.NewKubeRegistry()
	if err := tracker.Register(registry.CustomRegister); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		user    string
		reading annexed.Reading
	}{
		{"alice", annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleLatest, Index: "l:app", Scanned: 25, Returned: 20}},
		{"alice", annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, Index: "l:app", Scanned: 25, Returned: 25}},
		{"bob", annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleLatest, Scanned: 1000, Returned: 20}},
		{"carol", annexed.Reading{Source: annexed.SourceEtcd, Rule: annexed.RuleLatestFromEtcd, Scanned: 7, Returned: 7}},
	} {
		list := request{verb: "list", resource: "gadgets", user: r.user}
		list.send(list.context(t.Context()), tracker.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			record(req, r.reading)
			if r.user == "carol" {
				w.WriteHeader(http.StatusInternalServerError)
			}
			fmt.Fprint(w, "0123456789")
		}), gadgetsOnly, anyIndex))
	}
	const want = `
# HELP annex_list_profile_dropped_total [ALPHA] ListProfiles that had to make room for others.
# TYPE annex_list_profile_dropped_total counter
annex_list_profile_dropped_total 1
# HELP annex_list_profile_rows [ALPHA] ListProfiles that this process keeps, those that add up others included.
# TYPE annex_list_profile_rows gauge
annex_list_profile_rows 3
# HELP annex_read_response_bytes_total [ALPHA] Bytes of the answers as they left the server, of watches those sent so far.
# TYPE annex_read_response_bytes_total counter
annex_read_response_bytes_total{group="lab.annex.test",resource="gadgets",source="Cache",verb="list"} 30
annex_read_response_bytes_total{group="lab.annex.test",resource="gadgets",source="Etcd",verb="list"} 10
# HELP annex_read_returned_objects_total [ALPHA] Objects in the answers of gets and lists.
# TYPE annex_read_returned_objects_total counter
annex_read_returned_objects_total{group="lab.annex.test",index="",resource="gadgets",source="Cache",verb="list"} 20
annex_read_returned_objects_total{group="lab.annex.test",index="",resource="gadgets",source="Etcd",verb="list"} 7
annex_read_returned_objects_total{group="lab.annex.test",index="l:app",resource="gadgets",source="Cache",verb="list"} 45
# HELP annex_read_scanned_objects_total [ALPHA] Objects that gets and lists have compared with selectors, or returned without any.
# TYPE annex_read_scanned_objects_total counter
annex_read_scanned_objects_total{group="lab.annex.test",index="",resource="gadgets",source="Cache",verb="list"} 1000
annex_read_scanned_objects_total{group="lab.annex.test",index="",resource="gadgets",source="Etcd",verb="list"} 7
annex_read_scanned_objects_total{group="lab.annex.test",index="l:app",resource="gadgets",source="Cache",verb="list"} 50
# HELP annex_reads_failed_total [ALPHA] Gets and lists that were answered with an error or broken off, by the time limit or because the client left, and watches that were refused.
# TYPE annex_reads_failed_total counter
annex_reads_failed_total{group="lab.annex.test",resource="gadgets",source="Cache",verb="list"} 0
annex_reads_failed_total{group="lab.annex.test",resource="gadgets",source="Etcd",verb="list"} 1
# HELP annex_reads_total [ALPHA] Gets, lists and watches of custom resources, by what they were served from, the rule that decided about it and the index. All three are empty for a read that was refused before anything was read.
# TYPE annex_reads_total counter
annex_reads_total{group="lab.annex.test",index="",resource="gadgets",rule="Latest",source="Cache",verb="list"} 1
annex_reads_total{group="lab.annex.test",index="",resource="gadgets",rule="LatestFromEtcd",source="Etcd",verb="list"} 1
annex_reads_total{group="lab.annex.test",index="l:app",resource="gadgets",rule="Any",source="Cache",verb="list"} 1
annex_reads_total{group="lab.annex.test",index="l:app",resource="gadgets",rule="Latest",source="Cache",verb="list"} 1
`
	var names []string
	for _, description := range Descriptions() {
		names = append(names, description.Name)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// TestSeriesOfAnIndexGoWithIt looks at what there is of an index that a resource has no
// more: nothing under its name, also of a read that ends later, and all of the rest.
func TestSeriesOfAnIndexGoWithIt(t *testing.T) {
	tracker, _ := newTestTracker(10)
	registry := metrics.NewKubeRegistry()
	if err := tracker.Register(registry.CustomRegister); err != nil {
		t.Fatal(err)
	}
	var live Indexed = anyIndex
	list := request{verb: "list", resource: "gadgets", user: "bob"}
	read := func(index string, meanwhile func()) {
		reading := annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleLatest, Index: index, Scanned: 10, Returned: 5}
		inner := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			record(req, reading)
			meanwhile()
			fmt.Fprint(w, "0123456789")
		})
		indexed := func(resource schema.GroupResource, index string) bool { return live(resource, index) }
		list.send(list.context(t.Context()), tracker.Handler(inner, gadgetsOnly, indexed))
	}
	nothing := func() {}
	for _, index := range []string{"", "l:app", "f:spec.size"} {
		read(index, nothing)
	}
	gadgets := schema.GroupResource{Group: "lab.annex.test", Resource: "gadgets"}
	onlySize := func(resource schema.GroupResource, index string) bool {
		return resource == gadgets && index == "f:spec.size"
	}
	tracker.ForgetIndexes(schema.GroupResource{Group: "lab.annex.test", Resource: "planets"}, func(schema.GroupResource, string) bool { return false })
	read("l:app", func() {
		live = onlySize
		tracker.ForgetIndexes(gadgets, live)
	})
	const want = `
# HELP annex_read_response_bytes_total [ALPHA] Bytes of the answers as they left the server, of watches those sent so far.
# TYPE annex_read_response_bytes_total counter
annex_read_response_bytes_total{group="lab.annex.test",resource="gadgets",source="Cache",verb="list"} 30
# HELP annex_read_scanned_objects_total [ALPHA] Objects that gets and lists have compared with selectors, or returned without any.
# TYPE annex_read_scanned_objects_total counter
annex_read_scanned_objects_total{group="lab.annex.test",index="",resource="gadgets",source="Cache",verb="list"} 10
annex_read_scanned_objects_total{group="lab.annex.test",index="f:spec.size",resource="gadgets",source="Cache",verb="list"} 10
# HELP annex_reads_total [ALPHA] Gets, lists and watches of custom resources, by what they were served from, the rule that decided about it and the index. All three are empty for a read that was refused before anything was read.
# TYPE annex_reads_total counter
annex_reads_total{group="lab.annex.test",index="",resource="gadgets",rule="Latest",source="Cache",verb="list"} 1
annex_reads_total{group="lab.annex.test",index="f:spec.size",resource="gadgets",rule="Latest",source="Cache",verb="list"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "annex_read_response_bytes_total", "annex_read_scanned_objects_total", "annex_reads_total"); err != nil {
		t.Error(err)
	}
}
