// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	noGroups    = `{"apiVersion":"kubeannex.io/v1alpha1","kind":"AnnexedGroupList","items":[]}`
	twoGroups   = `{"apiVersion":"kubeannex.io/v1alpha1","kind":"AnnexedGroupList","items":[{"metadata":{"name":"argoproj.io"}},{"metadata":{"name":"lab.annex.test"}}]}`
	noSuchAPI   = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404,"message":"the server could not find the requested resource"}`
	unavailable = `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"service unavailable"}`
)

// answer is what the cluster says to one list.
type answer struct {
	code int
	body string
}

func TestCheckUninstall(t *testing.T) {
	tests := map[string]struct {
		// answers are given one after the other, the last one again and again.
		answers   []answer
		wantError string
	}{
		"annex has no groups": {
			answers: []answer{{http.StatusOK, noGroups}},
		},
		"the API is not there": {
			answers: []answer{{http.StatusNotFound, noSuchAPI}},
		},
		"annex comes back": {
			answers: []answer{{http.StatusServiceUnavailable, unavailable}, {http.StatusOK, noGroups}},
		},
		"annex has groups": {
			answers:   []answer{{http.StatusOK, twoGroups}},
			wantError: "annex has argoproj.io, lab.annex.test, which nobody could read without it: run \"kubectl annex release GROUP --wait\" for each group first",
		},
		"annex comes back with groups": {
			answers:   []answer{{http.StatusServiceUnavailable, unavailable}, {http.StatusOK, twoGroups}},
			wantError: "annex has argoproj.io, lab.annex.test, which nobody could read without it: run \"kubectl annex release GROUP --wait\" for each group first",
		},
		"annex does not answer": {
			answers:   []answer{{http.StatusServiceUnavailable, unavailable}},
			wantError: "annex does not say which groups it has: service unavailable: bring it back, or leave this check out (helm uninstall --no-hooks) if it has none",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := runCheck(t, "--timeout=2500ms", "--kubeconfig="+clusterOf(t, test.answers))
			if diff := cmp.Diff(test.wantError, text(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckUninstallOutsideOfACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	const want = "connecting to the cluster: unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined: name a kubeconfig by --kubeconfig"
	if diff := cmp.Diff(want, text(runCheck(t))); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

// runCheck runs the command. Its error becomes one line on stderr and exit code 1.
func runCheck(t *testing.T, args ...string) error {
	t.Helper()
	cmd := NewControllerCommand(t.Context())
	cmd.SetArgs(append([]string{"check-uninstall"}, args...))
	return cmd.Execute()
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// clusterOf starts a cluster that gives these answers and returns its kubeconfig.
func clusterOf(t *testing.T, answers []answer) string {
	t.Helper()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		next := answers[min(int(asked.Add(1)), len(answers))-1]
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(next.code)
		if _, err := w.Write([]byte(next.body)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: server.URL}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
	file.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}
