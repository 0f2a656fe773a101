// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// refusal is an answer. A body that begins as JSON is a Status.
type refusal struct {
	code int
	body string
}

func (r refusal) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if strings.HasPrefix(r.body, "{") {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(r.code)
	_, _ = w.Write([]byte(r.body))
}

// notFound is how a server answers that an object is not there.
func notFound(name string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"not found",`+
		`"reason":"NotFound","details":{"name":%q,"group":"lab.annex.test","kind":"gadgets"},"code":404}`, name)
}

// TestCacheProbe looks at what is asked of the server. No version has a cache.
func TestCacheProbe(t *testing.T) {
	const (
		object = `{"metadata":{"name":"a","namespace":"t"}}`
		beta   = "/apis/lab.annex.test/v1beta1/namespaces/t/gadgets/a"
	)
	version := func(name string, served, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: served, Storage: stored}
	}
	for name, tc := range map[string]struct {
		versions []apiextensionsv1.CustomResourceDefinitionVersion
		items    string
		// refusals are the paths that are refused, and how.
		refusals map[string]refusal
		want     []string
		wantErr  bool
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
			refusals: map[string]refusal{beta: {http.StatusInternalServerError, ""}},
			want:     []string{"/apis/lab.annex.test/v1/namespaces/default/gadgets", "/apis/lab.annex.test/v1/gadgets", beta},
			wantErr:  true,
		},
		"an object is deleted meanwhile": {
			versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1beta1", true, false), version("v1", true, true)},
			items:    object,
			refusals: map[string]refusal{beta: {http.StatusNotFound, notFound("a")}},
			want:     []string{"/apis/lab.annex.test/v1/namespaces/default/gadgets", "/apis/lab.annex.test/v1/gadgets", beta},
		},
		"a version is not served yet": {
			versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1beta1", true, false), version("v1", true, true)},
			items:    object,
			refusals: map[string]refusal{beta: {http.StatusNotFound, "404 page not found\n"}},
			want:     []string{"/apis/lab.annex.test/v1/namespaces/default/gadgets", "/apis/lab.annex.test/v1/gadgets", beta},
			wantErr:  true,
		},
		"a refusal names nothing": {
			versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1beta1", true, false), version("v1", true, true)},
			items:    object,
			refusals: map[string]refusal{beta: {http.StatusNotFound, notFound("")}},
			want:     []string{"/apis/lab.annex.test/v1/namespaces/default/gadgets", "/apis/lab.annex.test/v1/gadgets", beta},
			wantErr:  true,
		},
		"the stored version is not served yet": {
			versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true, true)},
			refusals: map[string]refusal{"/apis/lab.annex.test/v1/namespaces/default/gadgets": {http.StatusNotFound, "404 page not found\n"}},
			want:     []string{"/apis/lab.annex.test/v1/namespaces/default/gadgets"},
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
				if refusal, ok := tc.refusals[req.URL.Path]; ok {
					refusal.write(w)
					return
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
