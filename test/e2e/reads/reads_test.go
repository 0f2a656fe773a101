// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reads shows what a read through a real kube-apiserver leaves, and what the
// plugin says of it.
package reads

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// patience bounds a wait for what comes at once.
const patience = time.Minute

// TestBehindACluster checks that a client of kube-apiserver is known by its own
// name and user agent, and its request by one audit ID in the logs of both servers.
func TestBehindACluster(t *testing.T) {
	ctx, e, dir := t.Context(), env.ForTest(t), t.TempDir()
	policy, err := env.WriteAuditPolicy(dir)
	if err != nil {
		t.Fatal(err)
	}
	hostLog, annexLog := filepath.Join(dir, "host.log"), filepath.Join(dir, "annex.log")
	host, err := e.StartHost(ctx, env.HostOptions{APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + hostLog}})
	if err != nil {
		t.Fatal(err)
	}
	annex, err := e.StartAnnex(ctx, env.AnnexOptions{Host: host, Embedded: true, Args: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + annexLog}})
	if err != nil {
		t.Fatal(err)
	}
	register(t, annex)
	config, err := host.ConfigFor(0, "ann", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	config.UserAgent = "reader/v1.2 (linux/amd64) node-17"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	answer, err := adopted.Do(ctx, client, http.MethodGet, config.Host+"/apis/lab.annex.test/v1/planets?labelSelector=app%3Dx", nil)
	if err != nil || answer.Code != http.StatusOK {
		t.Fatalf("got code %d: %v: %s", answer.Code, err, answer.Body)
	}
	own, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := own.KubeannexV1alpha1().ListProfiles().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.ListProfileRow{
		Client: "reader", ClientVersion: "v1.2", User: "ann", Verb: "list", Group: env.FixtureGroup, Version: "v1", Resource: "planets",
		Selector: "app=", Source: v1alpha1.ListSourceCache, Count: 1, Bytes: int64(len(answer.Body)),
	}
	var got []v1alpha1.ListProfileRow
	for _, item := range list.Items {
		if item.Profile.LastSeen = (metav1.Time{}); item.Profile.User == "ann" {
			got = append(got, item.Profile)
		}
	}
	if diff := cmp.Diff([]v1alpha1.ListProfileRow{want}, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if here, there := planetsList(t, annexLog), planetsList(t, hostLog); here == "" || here != there {
		t.Errorf("the audit event has the ID %q in annex and %q in the cluster", here, there)
	}
	checkPlugin(t, host)
}

// register lets the cluster send its requests for planets and for annex's own group to annex.
func register(t *testing.T, annex *env.Annex) {
	t.Helper()
	direct, err := annex.AdminConfig(0)
	if err != nil {
		t.Fatal(err)
	}
	crd, err := env.PlanetCRD()
	if err != nil {
		t.Fatal(err)
	}
	if err := env.InstallCRD(t.Context(), direct, crd); err != nil {
		t.Fatal(err)
	}
	for group, version := range map[string]string{env.FixtureGroup: "v1", kubeannex.GroupName: "v1alpha1"} {
		if err := annex.RegisterAPIService(t.Context(), group, version); err != nil {
			t.Fatal(err)
		}
	}
}

// planetsList is the ID of ann's list of planets in an audit log.
func planetsList(t *testing.T, log string) types.UID {
	t.Helper()
	var id types.UID
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		content, err := os.ReadFile(log)
		if err != nil {
			return false, err
		}
		for line := range bytes.Lines(content) {
			var event auditv1.Event
			// The last line may be half written.
			if json.Unmarshal(line, &event) != nil || event.User.Username != "ann" {
				continue
			}
			if event.Stage == auditv1.StageResponseComplete && event.ObjectRef != nil && event.ObjectRef.Resource == "planets" {
				id = event.AuditID
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("waiting for the audit event in %s: %v", filepath.Base(log), err)
	}
	return id
}

// checkPlugin asks by kubectl what the list of ann costs, what one of a kind that the
// cluster keeps does, and who lists what.
func checkPlugin(t *testing.T, host *env.Host) {
	t.Helper()
	kubectl, err := host.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Abs("../../../_output/bin")
	if err != nil {
		t.Fatal(err)
	}
	kubectl = kubectl.With("PATH=" + programs)
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"a kind in annex":    {args: []string{"explain", "planets", "-l", "app=x", "--analyze"}, want: []string{"annex", "Latest", "app%3Dx"}},
		"by its path":        {args: []string{"explain", "/apis/lab.annex.test/v1/planets?resourceVersion=0&limit=5"}, want: []string{"annex", "Any", "ignored"}},
		"a kind of the host": {args: []string{"explain", "pods", "-A", "--field-selector", "spec.nodeName=n1"}, want: []string{"kube-apiserver", "Latest"}},
		"who lists what":     {args: []string{"top"}, want: []string{"reader", "ann", "planets.lab.annex.test", "app="}},
	} {
		out := kubectl.MustRun(t, append([]string{"annex"}, tc.args...)...)
		for _, part := range tc.want {
			if !strings.Contains(out, part) {
				t.Errorf("%s: %q is not in\n%s", name, part, out)
			}
		}
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a field that cannot be selected": {args: []string{"planets", "--field-selector", "spec.none=1"}, want: "field label not supported"},
		"an impossible combination":       {args: []string{"planets", "--resource-version=0", "--resource-version-match=Exact"}, want: "resourceVersionMatch"},
		"an unknown kind":                 {args: []string{"nothings"}, want: "the server doesn't have a resource type"},
	} {
		result, err := kubectl.Run(t.Context(), append([]string{"annex", "explain"}, tc.args...)...)
		if err != nil || result.ExitCode != 1 || !strings.Contains(result.Stderr, tc.want) || strings.Count(result.Stderr, "\n") != 1 {
			t.Errorf("%s: got %v and\n%s%s, want one line with %q", name, err, result.Stdout, result.Stderr, tc.want)
		}
	}
}
