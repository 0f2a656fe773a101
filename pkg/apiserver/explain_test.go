// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/explain"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// fairness limits no level of priority.
type fairness struct{ utilflowcontrol.Interface }

func (fairness) GetInterestedWatchCount(*genericapirequest.RequestInfo) int { return 0 }
func (fairness) GetMaxSeats(string) uint64                                  { return 0 }

func TestSeatEstimator(t *testing.T) {
	counts := flowcontrolrequest.NewStorageObjectCountTracker()
	counts.Set("things.g", storage.Stats{ObjectCount: 1000, EstimatedAverageObjectSizeBytes: 1500})
	estimate := seatEstimator(fairness{}, counts)
	for name, tc := range map[string]struct {
		query string
		want  int64
	}{
		"everything from the cache": {"resourceVersion=0", 10}, // as much as a streamed answer holds at once
		"a page from etcd":          {"resourceVersionMatch=Exact&resourceVersion=7&limit=100", 2},
		"everything from etcd":      {"resourceVersionMatch=Exact&resourceVersion=7", 15},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{Verb: "list", APIGroup: "g", Resource: "things"})
			if got := estimate(listRequest(ctx, t, tc.query)); got != tc.want {
				t.Errorf("got %d seats, want %d", got, tc.want)
			}
		})
	}
	if seatEstimator(nil, counts) != nil {
		t.Error("got an estimator for a server without priority and fairness")
	}
}

func listRequest(ctx context.Context, t *testing.T, query string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/apis/g/v1/things?"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func TestDescriber(t *testing.T) {
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.g"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "g", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1", SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.a"}, {JSONPath: ".spec.b"}}}, {Name: "v2"},
			},
		},
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := indexer.Add(definition); err != nil {
		t.Fatal(err)
	}
	lister := apiextensionslisters.NewCustomResourceDefinitionLister(indexer)
	indexes := newDeclaredIndexes()
	indexes.definitions = lister
	describe := describer(lister, indexes)
	fields := []string{"spec.a", "spec.b"}
	for version, want := range map[string]explain.Definition{
		"v1": {Namespaced: true, Fields: fields, Indexes: annexed.Indexes{Fields: fields, Trigger: annexed.Trigger{Field: "spec.a"}}},
		"v2": {Namespaced: true},
	} {
		if diff := cmp.Diff(want, describe(schema.GroupVersionResource{Group: "g", Version: version, Resource: "things"})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
	if diff := cmp.Diff(explain.Definition{}, describe(schema.GroupVersionResource{Version: "v1", Resource: "pods"})); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	kept := keptHere(lister, nil)
	for resource, want := range map[schema.GroupResource]bool{
		{Group: "g", Resource: "things"}:                                       true,
		{Group: "g", Resource: "others"}:                                       false,
		{Resource: "pods"}:                                                     false,
		{Group: "kubeannex.io", Resource: "annexedgroups"}:                     true,
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: false,
		{Group: "apps", Resource: "deployments"}:                               false,
	} {
		if got := kept(resource); got != want {
			t.Errorf("%s: got %t, want %t", resource, got, want)
		}
	}
}
