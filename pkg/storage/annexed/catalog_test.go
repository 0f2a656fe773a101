// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// TestListCost reckons lists of a pod world: ten pods, six of them in the namespace a, three on the node n1.
func TestListCost(t *testing.T) {
	w := newPodWorld(t, cached, stackOptions{declared: Indexes{Fields: []string{"spec.nodeName"}, Labels: []string{"app"}}})
	catalog, resource := NewCatalog(), podResource().WithVersion("v1")
	remove := catalog.add(resource, rotationOf(w.Interface))
	w.list(t.Context(), t, w.options(everything())) // the cache has seen all of them
	if _, err := w.Stats(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		namespace string
		options   storage.ListOptions
		want      int64
		unknown   bool
	}{
		"everything":                        {options: everything(), want: 10},
		"everything, at any version":        {options: at(everything(), "0", "", 0), want: 10},
		"a namespace":                       {namespace: "a", options: everything(), want: 6},
		"a namespace without objects":       {namespace: "none", options: everything(), want: 0},
		"a page":                            {options: at(everything(), "", "", 4), want: 4},
		"a page, which is not heeded":       {options: at(everything(), "0", "", 4), want: 10},
		"by an index":                       {options: field("spec.nodeName=n1"), want: 3},
		"by an index that finds nothing":    {options: field("spec.nodeName=none"), want: 0},
		"by a field without an index":       {options: field("spec.restartPolicy=Never"), want: 10},
		"a page by a label that is unknown": {options: at(label(t, "unknown=x"), "", "", 1), want: 10},
		"from etcd":                         {options: at(everything(), "old", metav1.ResourceVersionMatchExact, 0), unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := catalog.ListCost(t.Context(), resource, tc.namespace, w.options(tc.options))
			if known == tc.unknown || known && got.Scanned != tc.want {
				t.Errorf("got %d objects, known %t, want %d, known %t", got.Scanned, known, tc.want, !tc.unknown)
			}
			if known && got.ObjectBytes == 0 {
				t.Error("the size of an object is not known")
			}
		})
	}
	if _, known := catalog.ListCost(t.Context(), podResource().WithVersion("v2"), "", w.options(everything())); known {
		t.Error("got the cost of a resource that there is not")
	}
	other := &rotation{}
	catalog.add(resource, other)
	remove() // the storage of before goes after the next one has come
	if catalog.storages[resource] != other {
		t.Error("the next storage of a resource was removed with the one before")
	}
}

// TestCatalogFollowsStorages lets a decorator tell of a storage, and of its end.
func TestCatalogFollowsStorages(t *testing.T) {
	catalog := NewCatalog()
	_, destroy, err := assemble(stillStorage{}, func() {}, Config{WatchCache: true, Catalog: catalog, Indexes: staticIndexes{Indexes{Fields: []string{"spec.nodeName"}}}},
		cacherConfig(newTestCodec(t), stackOptions{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(catalog.storages) != 1 {
		t.Errorf("the catalog holds %d storages, want 1", len(catalog.storages))
	}
	destroy()
	if len(catalog.storages) != 0 {
		t.Error("the catalog holds a storage that was destroyed")
	}
}

// TestSizeOfQuietObjects demands that the size of objects is known of a storage of which nothing has changed
// since the server started: fairness takes one that is not known for the largest. A version that nobody has used
// is not read for it.
func TestSizeOfQuietObjects(t *testing.T) {
	first := newStack(t, cached, stackOptions{})
	for i := range 3 {
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprintf("quiet-%d", i)}}
		if err := first.Create(t.Context(), podPrefix+"a/"+pod.Name, pod, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		lazy              bool
		smallest, largest int64
	}{
		"with a cache":             {smallest: 50, largest: 1000},
		"before anybody needs one": {lazy: true},
	} {
		t.Run(name, func(t *testing.T) {
			restarted := newStack(t, cached, stackOptions{client: first.client, lazy: tc.lazy})
			stats, err := restarted.Stats(t.Context())
			size := stats.EstimatedAverageObjectSizeBytes
			if err != nil || stats.ObjectCount != 3 || size < tc.smallest || size > tc.largest {
				t.Errorf("got %+v and error %v, want three objects of %d to %d bytes", stats, err, tc.smallest, tc.largest)
			}
		})
	}
}
