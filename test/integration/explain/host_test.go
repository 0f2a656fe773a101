// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// startHost answers discovery as a cluster of 1.34 that emulates 1.31 with pods and gadgets does. It
// returns the file that names it.
func startHost(t *testing.T) string {
	t.Helper()
	list := metav1.Verbs{"get", "list", "watch"}
	answers := map[string]any{
		"/version": version.Info{Major: "1", Minor: "34+", GitVersion: "v1.34.4-lab.1", EmulationMajor: "1", EmulationMinor: "31"},
		"/api/v1":  metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: list}}},
		"/apis/lab.annex.test/v1": metav1.APIResourceList{
			GroupVersion: "lab.annex.test/v1", APIResources: []metav1.APIResource{{Name: "gadgets", Kind: "Gadget", Namespaced: true, Verbs: list}},
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		answer, ok := answers[request.URL.Path]
		if !ok {
			http.NotFound(w, request)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["host"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["host"] = &clientcmdapi.Context{Cluster: "host"}
	config.CurrentContext = "host"
	file := filepath.Join(t.TempDir(), "host.kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestWhoKeepsAKind follows a group that is adopted and released.
func TestWhoKeepsAKind(t *testing.T) {
	server := adopted.Start(t, "--kubeconfig="+startHost(t))
	annex, err := versioned.NewForConfig(server.Config(t, adopted.Somebody))
	if err != nil {
		t.Fatal(err)
	}
	w := world{annex: annex}
	for _, step := range []struct {
		mode v1alpha1.ServingMode
		want v1alpha1.ListServer
	}{
		{v1alpha1.ServingClosed, v1alpha1.ListServerHost},
		{v1alpha1.ServingReadOnly, v1alpha1.ListServerAnnex},
		{v1alpha1.ServingOpen, v1alpha1.ListServerAnnex},
		{v1alpha1.ServingReadOnly, v1alpha1.ListServerAnnex},
		{v1alpha1.ServingReleased, v1alpha1.ListServerHost},
	} {
		server.ServeNow(t, step.mode)
		status, err := w.review(t, v1alpha1.ListReviewSpec{Path: allPath})
		if err != nil {
			t.Fatal(err)
		}
		if status.Server != step.want {
			t.Errorf("%s: got %+v, want server %s", step.mode, status, step.want)
		}
	}
	status, err := w.review(t, v1alpha1.ListReviewSpec{Path: "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&resourceVersion=0&limit=500"})
	if err != nil {
		t.Fatal(err)
	}
	got := []any{status.Server, status.ServerVersion, status.Source, status.Rule, status.LimitIgnored, status.Index, status.Estimate == nil}
	want := []any{v1alpha1.ListServerHost, "v1.34.4-lab.1 (emulating 1.31)", v1alpha1.ListSourceCache, "Any", true, "f:spec.nodeName", true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{
		"/api/v1/nothing":        "the server could not find the requested resource",
		"/apis/x.test/v1/things": "the server could not find the requested resource",
	} {
		if _, err := w.review(t, v1alpha1.ListReviewSpec{Path: path}); !apierrors.IsNotFound(err) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
	if status, err := w.review(t, v1alpha1.ListReviewSpec{Path: "/apis/kubeannex.io/v1alpha1/annexedgroups"}); err != nil || status.Server != v1alpha1.ListServerAnnex {
		t.Errorf("annexedgroups: got %+v, %v", status, err)
	}
}
