// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// TestBehindACluster checks that a client of kube-apiserver is known by its own
// name and user agent, and its request by one audit ID in the logs of both servers.
func TestBehindACluster(t *testing.T) {
	ctx, e, dir := t.Context(), env.ForTest(t), t.TempDir()
	policy := writePolicy(t, dir)
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
		Client: "reader/v1.2", User: "ann", Verb: "list", Group: env.FixtureGroup, Version: "v1", Resource: "planets",
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
	for _, event := range events(t, log, "ann", 2) {
		if event.Stage == auditv1.StageResponseComplete && event.ObjectRef != nil && event.ObjectRef.Resource == "planets" {
			return event.AuditID
		}
	}
	return ""
}
