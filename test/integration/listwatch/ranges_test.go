// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics/legacyregistry"
)

// scan is what a list costs by the metrics apiserver_storage_list_* of
// k8s.io/apiserver: objects read from the storage, compared with a selector,
// and returned. Objects that the cache compares are not counted.
type scan struct {
	fetched, evaluated, returned int
}

func (s scan) minus(earlier scan) scan {
	return scan{s.fetched - earlier.fetched, s.evaluated - earlier.evaluated, s.returned - earlier.returned}
}

// readScan sums the metrics of a resource and a storage, "etcd" or "watchcache".
func readScan(t *testing.T, r *resource, storage string) scan {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["group"] == r.groupResource.Group && labels["resource"] == r.groupResource.Resource && labels["storage"] == storage {
				values[family.GetName()] += int(metric.GetCounter().GetValue())
			}
		}
	}
	return scan{
		fetched:   values["apiserver_storage_list_fetched_objects_total"],
		evaluated: values["apiserver_storage_list_evaluated_objects_total"],
		returned:  values["apiserver_storage_list_returned_objects_total"],
	}
}

// TestRangeAndFilter shows what a selector saves: a namespace or a full name
// narrows the range of keys that is read; a label, a field or a name without
// its namespace narrows the answer only. It is so in etcd and in the cache, except
// that the cache is indexed by selectable fields.
func TestRangeAndFilter(t *testing.T) {
	r := shared.resources[0]
	const old, now = 4, 5 // objects in all at rvUncached and at rvCurrent
	cases := map[string]struct {
		namespace, label, field string
		// etcd and cache are the objects read; wantOld and wantNow the ones returned.
		etcd, cache, wantOld, wantNow int
	}{
		"everything":                      {etcd: old, cache: now, wantOld: 4, wantNow: 5},
		"a namespace in the path":         {namespace: "a", etcd: 3, cache: 3, wantOld: 3, wantNow: 3},
		"another namespace in the path":   {namespace: "b", etcd: 1, cache: 2, wantOld: 1, wantNow: 2},
		"a namespace as a field":          {field: "metadata.namespace=a", etcd: 3, cache: 3, wantOld: 3, wantNow: 3},
		"a namespace excluded":            {field: "metadata.namespace!=a", etcd: old, cache: now, wantOld: 1, wantNow: 2},
		"a label":                         {label: "team=b", etcd: old, cache: now, wantOld: 1, wantNow: 2},
		"a label within a namespace":      {namespace: "a", label: "team=b", etcd: 3, cache: 3, wantOld: 1, wantNow: 1},
		"a field":                         {field: "spec.color=blue", etcd: old, cache: 1, wantOld: 1, wantNow: 1},
		"a field within a namespace":      {namespace: "b", field: "spec.color=blue", etcd: 1, cache: 1, wantOld: 0, wantNow: 1},
		"a name within a namespace":       {namespace: "a", field: "metadata.name=beta", etcd: 1, cache: 1, wantOld: 1, wantNow: 1},
		"a name in all namespaces":        {field: "metadata.name=beta", etcd: old, cache: now, wantOld: 1, wantNow: 1},
		"a name that is not there":        {namespace: "a", field: "metadata.name=nobody", etcd: 0, cache: 0, wantOld: 0, wantNow: 0},
		"a namespace that is not there":   {namespace: "c", etcd: 0, cache: 0, wantOld: 0, wantNow: 0},
		"a name and namespace, as fields": {field: "metadata.name=beta,metadata.namespace=a", etcd: 1, cache: 1, wantOld: 1, wantNow: 1},
	}
	for name, test := range cases {
		selectors := url.Values{"labelSelector": {test.label}, "fieldSelector": {test.field}}.Encode()
		path := r.path(test.namespace) + "?" + selectors
		exact := "&resourceVersionMatch=Exact&resourceVersion=" + shared.resourceVersion(rvUncached)
		for storage, step := range map[string]struct {
			path string
			want scan
		}{
			"etcd":       {path + exact, scan{fetched: test.etcd, evaluated: test.etcd, returned: test.wantOld}},
			"watchcache": {path + "&resourceVersion=0", scan{fetched: test.cache, returned: test.wantNow}},
		} {
			before := readScan(t, r, storage)
			if err := shared.must(t.Context(), http.MethodGet, step.path, nil, nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(step.want, readScan(t, r, storage).minus(before), cmp.AllowUnexported(scan{})); diff != "" {
				t.Errorf("%s, from %s (-want +got):\n%s", name, storage, diff)
			}
		}
	}
}
