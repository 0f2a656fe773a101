// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// TestDeclaredIndexesHave asks for indexes of any version by the names that metrics have.
func TestDeclaredIndexesHave(t *testing.T) {
	definitions, groups := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), cache.NewStore(cache.MetaNamespaceKeyFunc)
	indexes := newDeclaredIndexes()
	things := schema.GroupResource{Group: "g", Resource: "things"}
	if indexes.has(things, "f:spec.a") {
		t.Error("an index is declared before anything is known")
	}
	indexes.definitions, indexes.groups = apiextensionslisters.NewCustomResourceDefinitionLister(definitions), groups
	if err := definitions.Add(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.g"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1"}, {Name: "v2", SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.a"}}},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := groups.Add(&v1alpha1.AnnexedGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "g"},
		Spec: v1alpha1.AnnexedGroupSpec{Resources: []v1alpha1.AnnexedResourceSpec{
			{Resource: "things", IndexLabels: []string{"app"}, WatchIndex: &v1alpha1.WatchIndex{Label: "node"}},
			{Resource: "others", IndexLabels: []string{"tier"}},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	for index, want := range map[string]bool{"f:spec.a": true, "l:app": true, "l:node": true, "l:tier": false, "f:spec.b": false, "f:": false, "l:": false} {
		if got := indexes.has(things, index); got != want {
			t.Errorf("%s: got %t, want %t", index, got, want)
		}
	}
	if indexes.has(schema.GroupResource{Group: "g", Resource: "others"}, "l:tier") {
		t.Error("a resource without a definition has an index")
	}
}
