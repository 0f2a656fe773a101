// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// TestCacheProbe looks at what is asked of the server. No version has a cache.
func TestCacheProbe(t *testing.T) {
	const object = `{"metadata":{"name":"a","namespace":"t"}}`
	version := func(name string, served, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: served, Storage: stored}
	}
	for name, tc := range map[string]struct {
		versions []apiextensionsv1.CustomResourceDefinitionVersion
		items    string
		// refused is a path that is answered by 500.
		refused string
		want    []string
		wantErr bool
	}{
		"the stored version is listed, one object is read in the others": {
			versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1beta1", true, false), version("v1", true, true), version("v1alpha1", false, false)},
			items:    object,
			want:     []string{"/apis/lab.annex.test/v1/namespaces/default/gadgets", "/apis/lab.annex.test/v1/gadgets", "/apis/lab.annex.test/v1beta1/namespaces/t/gadgets/a"},
		},
		"without objects there is none to read": {
			versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1beta1", true, false), version("v1", true, true)},
			want:     []string{"/apis/lab.annex.test/v1/namespaces/default/gadgets", "/apis/lab.annex.test/v1/gadgets"},
		},
		"the stored version is not served": {
			versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", false, true), version("v2", true, false), version("v3", true, false)},
			items:    object,
			want:     []string{"/apis/lab.annex.test/v2/namespaces/default/gadgets", "/apis/lab.annex.test/v2/gadgets", "/apis/lab.annex.test/v3/namespaces/t/gadgets/a"},
		},
		"an object cannot be converted": {
			versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1beta1", true, false), version("v1", true, true)},
			items:    object,
			refused:  "/apis/lab.annex.test/v1beta1/namespaces/t/gadgets/a",
			want:     []string{"/apis/lab.annex.test/v1/namespaces/default/gadgets", "/apis/lab.annex.test/v1/gadgets", "/apis/lab.annex.test/v1beta1/namespaces/t/gadgets/a"},
			wantErr:  true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var lock sync.Mutex
			var got []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				lock.Lock()
				got = append(got, req.URL.Path)
				lock.Unlock()
				if req.URL.Path == tc.refused {
					w.WriteHeader(http.StatusInternalServerError)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"items":[` + tc.items + `]}`))
			}))
			defer server.Close()
			probe, err := newCacheProbe(&rest.Config{Host: server.URL}, annexed.NewMetrics())
			if err != nil {
				t.Fatal(err)
			}
			definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "lab.annex.test", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets"},
				Scope: apiextensionsv1.NamespaceScoped, Versions: tc.versions,
			}}
			if err := probe.probe(t.Context(), definition); (err != nil) != tc.wantErr {
				t.Errorf("got error %v, want one: %t", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}
