// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
)

// TestOneAuditID: who adds the ID to the answer itself is not sent it.
func TestOneAuditID(t *testing.T) {
	withID := func(headers map[string]string) map[string]string {
		all := map[string]string{"Audit-ID": "abc"}
		maps.Copy(all, headers)
		return all
	}
	endings := map[string]http.HandlerFunc{
		"a body":        func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("{}")) }, //nolint:errcheck // into memory
		"a code":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"a first event": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK); w.(http.Flusher).Flush() },
	}
	for name, tc := range map[string]struct {
		headers map[string]string
		want    []string
	}{
		"sent by the cluster":            {withID(proxied("somebody")), nil},
		"sent by the cluster without ID": {proxied("somebody"), []string{"new"}},
		"a client's own":                 {withID(nil), []string{"abc"}},
		"a client without ID":            {nil, []string{"new"}},
	} {
		for ending, handler := range endings {
			t.Run(name+", "+ending, func(t *testing.T) {
				chain := WithFrontProxy(WithOneAuditID(genericapifilters.WithAuditInit(handler)), headerrequest.StaticStringSlice{"x-proxied-user"})
				server := httptest.NewServer(chain)
				defer server.Close()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				for header, value := range tc.headers {
					req.Header.Set(header, value)
				}
				response, err := server.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				got := response.Header.Values("Audit-Id")
				if len(got) == 1 && got[0] != "abc" {
					got = []string{"new"}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("IDs (-want +got):\n%s", diff)
				}
			})
		}
	}
}
