// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

func TestWriteProfile(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Query().Get("seconds") == "0" {
			http.Error(w, "no profile", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, request.URL)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	path := filepath.Join(t.TempDir(), "profiles", "crud-host-server")
	for kind, want := range map[ProfileKind]struct{ file, request string }{
		ProfileCPU:         {path + ".pprof", "/debug/pprof/profile?seconds=10"},
		ProfileAllocations: {path + ".allocs.pprof", "/debug/pprof/allocs?seconds=10"},
	} {
		if err := WriteProfile(t.Context(), config, kind, 10*time.Second, path); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(want.file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.request, string(got)); diff != "" {
			t.Errorf("the request differs (-want +got):\n%s", diff)
		}
	}
	if err := WriteProfile(t.Context(), config, ProfileCPU, 0, path); err == nil {
		t.Error("a server that answers with an error gives none")
	}
}
