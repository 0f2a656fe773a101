// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

func TestParsePath(t *testing.T) {
	for name, tc := range map[string]struct {
		raw      string
		wantURI  string // raw, if empty
		wantVerb string
		want     string // group/version/namespace/resource
	}{
		"core kind":              {raw: "/api/v1/pods", wantVerb: "list", want: "/v1//pods"},
		"with a query":           {raw: "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500", wantVerb: "list", want: "/v1//pods"},
		"in a namespace":         {raw: "/apis/argoproj.io/v1alpha1/namespaces/prod/workflows", wantVerb: "list", want: "argoproj.io/v1alpha1/prod/workflows"},
		"the namespaces":         {raw: "/api/v1/namespaces", wantVerb: "list", want: "/v1//namespaces"},
		"one name":               {raw: "/api/v1/pods?fieldSelector=metadata.name%3Dx", wantVerb: "list", want: "/v1//pods"},
		"malformed selector":     {raw: "/api/v1/pods?labelSelector=%21%21", wantVerb: "list", want: "/v1//pods"},
		"initial events":         {raw: "/apis/g/v1/things?watch=true&sendInitialEvents=true", wantVerb: "watch", want: "g/v1//things"},
		"of an address":          {raw: "https://10.0.0.1:6443/api/v1/pods?limit=1", wantURI: "/api/v1/pods?limit=1", wantVerb: "list", want: "/v1//pods"},
		"typed by hand":          {raw: "/api/v1/pods?labelSelector=app in (a,b)", wantURI: "/api/v1/pods?labelSelector=app%20in%20(a,b)", wantVerb: "list", want: "/v1//pods"},
		"a kind that is not one": {raw: "/apis/g/v1/Nothing", wantVerb: "list", want: "g/v1//Nothing"},
		"an empty query":         {raw: "/api/v1/pods?", wantURI: "/api/v1/pods", wantVerb: "list", want: "/v1//pods"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePath(tc.raw)
			if err != nil {
				t.Fatal(err)
			}
			if tc.wantURI == "" {
				tc.wantURI = tc.raw
			}
			info := got.Info
			if diff := cmp.Diff([]string{tc.wantURI, tc.wantVerb, tc.want},
				[]string{got.URI, info.Verb, info.APIGroup + "/" + info.APIVersion + "/" + info.Namespace + "/" + info.Resource}); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
	for name, raw := range map[string]string{
		"nothing":                       "",
		"no path":                       "pods",
		"another scheme":                "ftp://x/api/v1/pods",
		"an object":                     "/api/v1/namespaces/a/pods/b",
		"a namespace":                   "/api/v1/namespaces/a",
		"a namespace's status":          "/api/v1/namespaces/a/status",
		"a namespace's end":             "/api/v1/namespaces/a/finalize",
		"exec":                          "/api/v1/namespaces/a/pods/b/exec?command=sh",
		"proxy":                         "/api/v1/namespaces/a/services/b/proxy",
		"proxy by its verb":             "/api/v1/proxy/nodes",
		"watch by its verb":             "/api/v1/watch/pods?watch=true&sendInitialEvents=true",
		"watch in a namespace":          "/api/v1/watch/namespaces/a/pods",
		"a cluster-scoped object":       "/api/v1/nodes/n1",
		"a watch":                       "/api/v1/pods?watch=true",
		"a watch without the objects":   "/api/v1/pods?watch=1&sendInitialEvents=false",
		"a watch that asks to be a get": "/api/v1/pods?watch=&watch=true",
		"dots":                          "/api/v1/../pods",
		"encoded dots":                  "/api/v1/%2e%2e/pods",
		"an encoded slash":              "/api/v1/pods%2Fexec",
		"an empty part":                 "/api/v1//pods",
		"a slash at the end":            "/api/v1/pods/",
		"discovery":                     "/apis/apps/v1",
		"a legacy group":                "/api/v1",
		"no resource":                   "/healthz",
		"two slashes at the start":      "//api/v1/pods",
		"a new line":                    "/api/v1/pods\n",
		"another service":               "/oidc/v1/pods",
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			if got, err := ParsePath(raw); err == nil {
				t.Errorf("accepted %q as %+v", raw, got.Info)
			}
		})
	}
}

func TestNewRequest(t *testing.T) {
	pods := &kubeannex.ListedResource{Version: "v1", Resource: "pods"}
	for name, tc := range map[string]struct {
		spec    kubeannex.ListReviewSpec
		wantURI string
		wantErr string
	}{
		"all options": {
			spec: kubeannex.ListReviewSpec{
				Resource: &kubeannex.ListedResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "workflows", Namespace: "prod"},
				Options: &kubeannex.ListReviewOptions{
					LabelSelector: "app in (x, y)", FieldSelector: "spec.nodeName=n1", Limit: 500, Continue: "abc",
					ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
				},
			},
			wantURI: "/apis/argoproj.io/v1alpha1/namespaces/prod/workflows?continue=abc&fieldSelector=spec.nodeName%3Dn1" +
				"&labelSelector=app+in+%28x%2C+y%29&limit=500&resourceVersion=0&resourceVersionMatch=NotOlderThan",
		},
		"no options":       {spec: kubeannex.ListReviewSpec{Resource: pods}, wantURI: "/api/v1/pods"},
		"a negative limit": {spec: kubeannex.ListReviewSpec{Resource: pods, Options: &kubeannex.ListReviewOptions{Limit: -1}}, wantURI: "/api/v1/pods?limit=-1"},
		"initial events": {
			spec:    kubeannex.ListReviewSpec{Resource: pods, Options: &kubeannex.ListReviewOptions{SendInitialEvents: ptr.To(true)}},
			wantURI: "/api/v1/pods?allowWatchBookmarks=true&sendInitialEvents=true&watch=true",
		},
		"no initial events are left to the server": {
			spec:    kubeannex.ListReviewSpec{Resource: pods, Options: &kubeannex.ListReviewOptions{SendInitialEvents: ptr.To(false)}},
			wantURI: "/api/v1/pods?sendInitialEvents=false",
		},
		"a path":  {spec: kubeannex.ListReviewSpec{Path: "/api/v1/pods"}, wantURI: "/api/v1/pods"},
		"neither": {wantErr: "spec: Required value: set path or resource"},
		"both":    {spec: kubeannex.ListReviewSpec{Path: "/api/v1/pods", Resource: pods}, wantErr: "spec.resource: Forbidden: set either path or resource"},
		"options beside a path": {
			spec:    kubeannex.ListReviewSpec{Path: "/api/v1/pods", Options: &kubeannex.ListReviewOptions{}},
			wantErr: "spec.options: Forbidden: a path has its options in its query",
		},
		"no version":    {spec: kubeannex.ListReviewSpec{Resource: &kubeannex.ListedResource{Resource: "pods"}}, wantErr: "spec.resource.version: Required value: a list is of one version of one resource"},
		"a subresource": {spec: kubeannex.ListReviewSpec{Resource: &kubeannex.ListedResource{Version: "v1", Resource: "pods/log"}}, wantErr: `spec.resource.resource: Invalid value: "pods/log": is not one part of a path`},
		"a way out":     {spec: kubeannex.ListReviewSpec{Resource: &kubeannex.ListedResource{Version: "v1", Resource: "pods", Namespace: ".."}}, wantErr: `spec.resource.namespace: Invalid value: "..": is not one part of a path`},
		"a query in it": {spec: kubeannex.ListReviewSpec{Resource: &kubeannex.ListedResource{Version: "v1", Resource: "pods?watch=true"}}, wantErr: `spec.resource.resource: Invalid value: "pods?watch=true": is not one part of a path`},
	} {
		t.Run(name, func(t *testing.T) {
			request, errs := newRequest(&tc.spec)
			var gotErr, gotURI string
			if len(errs) != 0 {
				gotErr = errs.ToAggregate().Error()
			} else {
				gotURI = request.URI
			}
			if diff := cmp.Diff([]string{tc.wantURI, tc.wantErr}, []string{gotURI, gotErr}); diff != "" {
				t.Errorf("URI and error (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzPath shows that nothing but a list or a watch with its objects comes
// through, and that a server understands what is sent as what was typed.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"/api/v1/pods", "/apis/g/v1/namespaces/n/things?labelSelector=a%3Db&limit=5", "/api/v1/namespaces/a/status",
		"/api/v1/watch/pods?sendInitialEvents=true", "/api/v1/proxy/nodes/x", "https://u:p@h/api/v1/pods?x=#y",
		"/api/v1/pods?watch=true&sendInitialEvents=true", "/api/v1/pods?watch=%zz&sendInitialEvents=true", "/api/v1/pods%2f..",
		"/apis/a/namespaces/x/y", "/api/namespaces/namespaces/namespaces/namespaces", "//h/api/v1/pods", "/api/v1/pods?fieldSelector=metadata.name=x",
		"/api/v1/pods?;watch=true", "/api/v1/pods?watch=a&watch=false", "/api/v1/pods? watch=1", "/api/0/0?watch#0",
	} {
		f.Add(seed)
	}
	factory := genericapirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	f.Fuzz(func(t *testing.T, raw string) {
		request, err := ParsePath(raw)
		if err != nil {
			return
		}
		again, err := ParsePath(request.URI)
		if err != nil || again.URI != request.URI {
			t.Fatalf("%q became %q, and that %+v, %v", raw, request.URI, again, err)
		}
		wire, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server"+request.URI, http.NoBody)
		if err != nil {
			t.Fatalf("%q cannot be sent: %v", request.URI, err)
		}
		info, err := factory.NewRequestInfo(wire)
		if err != nil {
			t.Fatalf("%q: %v", request.URI, err)
		}
		if diff := cmp.Diff(request.Info, info); diff != "" {
			t.Fatalf("a server understands %q as something else (-here +there):\n%s", request.URI, diff)
		}
		if !slices.Contains([]string{"list", "watch"}, info.Verb) || info.Subresource != "" || len(info.Parts) != 1 || !info.IsResourceRequest {
			t.Fatalf("%q is not a list: %+v", raw, info)
		}
	})
}
