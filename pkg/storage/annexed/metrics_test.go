// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

func TestMetricsExposition(t *testing.T) {
	s := newStack(t, uncached, stackOptions{})
	createPod(t.Context(), t, s, "one")
	createPod(t.Context(), t, s, "two")
	if err := s.GetList(t.Context(), podPrefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, &example.PodList{}); err != nil {
		t.Fatal(err)
	}

	registry := metrics.NewKubeRegistry()
	if err := s.metrics.Register(registry.CustomRegister); err != nil {
		t.Fatal(err)
	}
	want := `# HELP annex_storage_etcd_listed_objects_total [ALPHA] Objects returned by lists that etcd answered, by resource and by who caused them.
# TYPE annex_storage_etcd_listed_objects_total counter
annex_storage_etcd_listed_objects_total{caller="client",group="",resource="pods"} 2
# HELP annex_storage_etcd_requests_total [ALPHA] Requests to etcd by resource, by who caused them and by operation.
# TYPE annex_storage_etcd_requests_total counter
annex_storage_etcd_requests_total{caller="client",group="",operation="create",resource="pods"} 2
annex_storage_etcd_requests_total{caller="client",group="",operation="list",resource="pods"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestMetricsRegisterTwice(t *testing.T) {
	m := NewMetrics()
	registry := metrics.NewKubeRegistry()
	if err := m.Register(registry.CustomRegister); err != nil {
		t.Fatal(err)
	}
	if err := m.Register(registry.CustomRegister); err == nil {
		t.Error("got no error for the second registration")
	}
	if err := m.Register(metrics.NewKubeRegistry().CustomRegister); err != nil {
		t.Errorf("registering with a second registry: %v", err)
	}
}

func TestCountsAreKeptPerResource(t *testing.T) {
	m := NewMetrics()
	pods, jobs := podResource(), schema.GroupResource{Group: "batch", Resource: "jobs"}
	m.forResource(pods).addRequest(CallerClient, OperationGet)
	before := m.Counts(pods)
	m.forResource(pods).addRequest(CallerClient, OperationGet)
	m.forResource(pods).addRequest(CallerCache, OperationWatch)

	want := Counts{{CallerClient, OperationGet}: 1, {CallerCache, OperationWatch}: 1}
	if diff := cmp.Diff(want, m.Counts(pods).Sub(before)); diff != "" {
		t.Errorf("counts since the first reading (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Counts{}, m.Counts(jobs)); diff != "" {
		t.Errorf("counts of the other resource (-want +got):\n%s", diff)
	}
}

func TestNilMetricsCountNothing(t *testing.T) {
	var m *Metrics
	m.forResource(podResource()).addRequest(CallerClient, OperationGet)
	if diff := cmp.Diff(Counts{}, m.Counts(podResource())); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestIndexMetrics(t *testing.T) {
	source := &changingIndexes{current: Indexes{Fields: []string{"spec.nodeName"}}}
	s := newStack(t, cached, stackOptions{source: source})
	createPod(t.Context(), t, s, "one")
	registry := metrics.NewKubeRegistry()
	if err := s.metrics.Register(registry.CustomRegister); err != nil {
		t.Fatal(err)
	}
	expect := func(index string, entries, bytes int) {
		t.Helper()
		want := fmt.Sprintf(`# HELP annex_index_bytes [ALPHA] %s
# TYPE annex_index_bytes gauge
annex_index_bytes{group="",index=%q,resource="pods",version=""} %d
# HELP annex_index_entries [ALPHA] %s
# TYPE annex_index_entries gauge
annex_index_entries{group="",index=%q,resource="pods",version=""} %d
`, bytesDescription().Help, index, bytes, entriesDescription().Help, index, entries)
		var err error
		eventually(t, "metrics of index "+index, func() bool {
			err = testutil.GatherAndCompare(registry, strings.NewReader(want), "annex_index_bytes", "annex_index_entries")
			return err == nil
		})
	}
	expect("f:spec.nodeName", 1, bytesPerValue+bytesOfSmallMap)
	source.change(Indexes{Labels: []string{"app"}})
	expect("l:app", 0, 0)
}

// TestIndexEndsWithItsCache looks at what is told of the indexes of a cache that another
// replaces: they are there until nobody reads through them any more.
func TestIndexEndsWithItsCache(t *testing.T) {
	source := &changingIndexes{current: Indexes{Fields: []string{"spec.nodeName"}}}
	ended := make(chan schema.GroupResource, 2)
	s := newStack(t, cached, stackOptions{source: source, ended: func(resource schema.GroupResource) { ended <- resource }})
	indexed := func() [3]bool {
		return [3]bool{s.metrics.Indexed(podResource(), "f:spec.nodeName"), s.metrics.Indexed(podResource(), "l:app"), s.metrics.Indexed(schema.GroupResource{Resource: "jobs"}, "l:app")}
	}
	if got := indexed(); got != [3]bool{true, false, false} {
		t.Errorf("before the exchange got %v", got)
	}
	source.change(Indexes{Labels: []string{"app"}})
	if resource := <-ended; resource != podResource() {
		t.Errorf("a cache of %v has ended", resource)
	}
	if got := indexed(); got != [3]bool{false, true, false} {
		t.Errorf("after the exchange got %v", got)
	}
	s.destroy()
	<-ended
	if got := indexed(); got != [3]bool{} {
		t.Errorf("after the storage has ended got %v", got)
	}
}
