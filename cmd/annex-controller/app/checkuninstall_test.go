// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"path"
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

// Answers to a list of APIServices. The first has a local group, another server's,
// and the API of annex itself.
const (
	noRoutes  = `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIServiceList","items":[` + otherRoutes + `]}`
	twoRoutes = `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIServiceList","items":[` + otherRoutes + `,
		{"metadata":{"name":"v1beta1.lab.annex.test"},"spec":{"group":"lab.annex.test","version":"v1beta1","service":{"namespace":"annex-system","name":"annex"}}},
		{"metadata":{"name":"v1.lab.annex.test"},"spec":{"group":"lab.annex.test","version":"v1","service":{"namespace":"annex-system","name":"annex"}}},
		{"metadata":{"name":"v1alpha1.argoproj.io"},"spec":{"group":"argoproj.io","version":"v1alpha1","service":{"namespace":"annex-system","name":"annex"}}}]}`
	otherRoutes = `{"metadata":{"name":"v1.apps"},"spec":{"group":"apps","version":"v1"}},
		{"metadata":{"name":"v1.a.test"},"spec":{"group":"a.test","version":"v1","service":{"namespace":"annex-system","name":"metrics"}}},
		{"metadata":{"name":"v1.b.test"},"spec":{"group":"b.test","version":"v1","service":{"namespace":"elsewhere","name":"annex"}}},
		{"metadata":{"name":"v1alpha1.kubeannex.io"},"spec":{"group":"kubeannex.io","version":"v1alpha1","service":{"namespace":"annex-system","name":"annex"}}}`
)

// answer is what the cluster says to one list.
type answer struct {
	code int
	body string
}

func TestCheckUninstall(t *testing.T) {
	const (
		argoAndLab = "annex has argoproj.io, lab.annex.test, which nobody could read without it: run \"kubectl annex release GROUP --wait\" for each group first"
		orSee      = ", or see \"Uninstall is refused\" in docs/install.md if annex does not know it"
	)
	tests := map[string]struct {
		args []string
		// answers to a list of groups and routes to one of APIServices are given one after
		// the other, the last one again and again. No routes are an answer with none.
		answers, routes []answer
		wantError       string
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
			wantError: argoAndLab,
		},
		"annex comes back with groups": {
			answers:   []answer{{http.StatusServiceUnavailable, unavailable}, {http.StatusOK, twoGroups}},
			wantError: argoAndLab,
		},
		"annex does not answer": {
			answers:   []answer{{http.StatusServiceUnavailable, unavailable}},
			wantError: "annex does not say which groups it has: service unavailable: bring it back, or leave this check out (helm uninstall --no-hooks) if it has none",
		},
		"the API is not there, and groups are sent to annex": {
			answers:   []answer{{http.StatusNotFound, noSuchAPI}},
			routes:    []answer{{http.StatusOK, twoRoutes}},
			wantError: argoAndLab + orSee,
		},
		"annex has lost its groups": {
			answers:   []answer{{http.StatusOK, noGroups}},
			routes:    []answer{{http.StatusOK, twoRoutes}},
			wantError: argoAndLab + orSee,
		},
		"annex does not answer, and groups are sent to it": {
			answers:   []answer{{http.StatusServiceUnavailable, unavailable}},
			routes:    []answer{{http.StatusServiceUnavailable, unavailable}, {http.StatusOK, twoRoutes}},
			wantError: argoAndLab + orSee,
		},
		"groups are sent to another annex": {
			args:    []string{"--annex-service=elsewhere/other:443"},
			answers: []answer{{http.StatusNotFound, noSuchAPI}},
			routes:  []answer{{http.StatusOK, twoRoutes}},
		},
		"the cluster does not answer": {
			answers:   []answer{{http.StatusNotFound, noSuchAPI}},
			routes:    []answer{{http.StatusServiceUnavailable, unavailable}},
			wantError: "the cluster does not say which groups it sends to annex: service unavailable: mend that, or leave this check out (helm uninstall --no-hooks) if there is none",
		},
		"a bad service": {
			args:      []string{"--annex-service=annex"},
			answers:   []answer{{http.StatusOK, noGroups}},
			wantError: `--annex-service is "annex": write namespace/name:port`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.routes == nil {
				test.routes = []answer{{http.StatusOK, noRoutes}}
			}
			kubeconfig := clusterOf(t, map[string][]answer{"annexedgroups": test.answers, "apiservices": test.routes})
			err := runCheck(t, append(test.args, "--timeout=2500ms", "--kubeconfig="+kubeconfig)...)
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

// clusterOf starts a cluster that gives these answers to lists of a resource and
// returns its kubeconfig.
func clusterOf(t *testing.T, answers map[string][]answer) string {
	t.Helper()
	asked := map[string]*atomic.Int32{}
	for resource := range answers {
		asked[resource] = &atomic.Int32{}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource := path.Base(r.URL.Path)
		given := answers[resource]
		if given == nil {
			t.Errorf("%s is asked for", r.URL.Path)
			return
		}
		next := given[min(int(asked[resource].Add(1)), len(given))-1]
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
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}
