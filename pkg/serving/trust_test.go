// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhoIsAnsweredWithoutTrust(t *testing.T) {
	tests := map[string]struct {
		path    string
		headers map[string]string
		want    int
	}{
		"a list":                   {"/apis/lab.test/v1/gadgets", nil, http.StatusServiceUnavailable},
		"a list with a token":      {"/apis/lab.test/v1/gadgets", bearing("another"), http.StatusServiceUnavailable},
		"sent by the cluster":      {"/apis/lab.test/v1/gadgets", proxied("somebody"), http.StatusServiceUnavailable},
		"the server's own group":   {"/apis/kubeannex.io/v1alpha1/annexedgroups", nil, http.StatusServiceUnavailable},
		"discovery":                {"/apis", nil, http.StatusServiceUnavailable},
		"metrics":                  {"/metrics", nil, http.StatusServiceUnavailable},
		"a path like a check":      {"/readyzes", nil, http.StatusServiceUnavailable},
		"a check further below":    {"/apis/readyz", nil, http.StatusServiceUnavailable},
		"the server itself":        {"/apis/lab.test/v1/gadgets", bearing(ownToken), http.StatusOK},
		"readiness":                {"/readyz", nil, http.StatusOK},
		"one check of readiness":   {"/readyz/etcd", nil, http.StatusOK},
		"liveness":                 {"/livez", nil, http.StatusOK},
		"health, by its old name":  {"/healthz", nil, http.StatusOK},
		"one check, with a prefix": {"/livez/poststarthook/cluster-trust", nil, http.StatusOK},
	}
	for name, tc := range tests {
		for state, err := range map[string]error{"before": errors.New("not read"), "after": nil} {
			t.Run(name+" "+state, func(t *testing.T) {
				want := tc.want
				if err == nil {
					want = http.StatusOK
				}
				req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil)
				for header, value := range tc.headers {
					req.Header.Set(header, value)
				}
				recorder := httptest.NewRecorder()
				WithLoopback(WithTrust(http.HandlerFunc(ok), func() error { return err }, codecs()), ownToken).ServeHTTP(recorder, req)
				if recorder.Code != want {
					t.Fatalf("code: got %d, want %d: %s", recorder.Code, want, recorder.Body)
				}
				if want != http.StatusOK {
					checkDistrust(t, recorder)
				}
			})
		}
	}
}

// checkDistrust demands an answer that makes clients of Kubernetes come again, by a new connection.
func checkDistrust(t *testing.T, recorder *httptest.ResponseRecorder) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(recorder.Body.Bytes(), &status); err != nil {
		t.Fatalf("%v: %s", err, recorder.Body)
	}
	if status.Message == "" {
		t.Error("no message")
	}
	status.Message = ""
	want := unavailable("").Status()
	want.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	got := [2]string{recorder.Header().Get("Retry-After"), recorder.Header().Get("Connection")}
	if got != [2]string{"1", "close"} {
		t.Errorf("Retry-After and Connection: got %q", got)
	}
}
