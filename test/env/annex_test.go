// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// planetsAt returns a client of the planets and installs their CRD.
func planetsAt(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	crd, err := PlanetCRD()
	if err != nil {
		t.Fatal(err)
	}
	if err := InstallCRD(testContext(t), config, crd); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(PlanetResource())
}

// TestStandaloneAnnex uses a standalone annex through kubectl, kills it and
// finds everything again, and stops it.
func TestStandaloneAnnex(t *testing.T) {
	ctx := testContext(t)
	begin := time.Now()
	annex, err := ForTest(t).StartAnnex(ctx, AnnexOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("standalone annex ready after %s", time.Since(begin).Round(time.Millisecond))
	config, err := annex.AdminConfig(0)
	if err != nil {
		t.Fatal(err)
	}
	planets := planetsAt(t, config)
	if _, err := planets.Create(ctx, Object("Planet", "", "earth", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	server := annex.Replicas[0]
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed annex ready again after %s", time.Since(begin).Round(time.Millisecond))
	kubectl, err := annex.Kubectl(0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := kubectl.MustRun(t, "get", "planets", "-o", "name"), "planet.lab.annex.test/earth\n"; got != want {
		t.Errorf("kubectl get after the restart: %q, want %q", got, want)
	}
	if err := server.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if got := server.ExitCode(); got != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", got)
	}
}

// TestDelegatedAnnex starts a host with two kube-apiservers and ABAC, and an
// annex with embedded etcd behind it: both servers lead to the same objects, and
// the host decides about a user who comes through the front proxy.
func TestDelegatedAnnex(t *testing.T) {
	ctx := testContext(t)
	e := ForTest(t)
	policy := e.dir + "/abac.jsonl"
	if err := writeFile(policy, []byte(abacPolicy)); err != nil {
		t.Fatal(err)
	}
	host := startHost(t, e, HostOptions{
		APIServers:        2,
		AuthorizationMode: "ABAC",
		APIServerArgs:     []string{"--authorization-policy-file=" + policy},
	})
	annex, err := e.StartAnnex(ctx, AnnexOptions{Host: host, Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	direct, err := annex.AdminConfig(0)
	if err != nil {
		t.Fatal(err)
	}
	planets := planetsAt(t, direct)
	if err := annex.RegisterAPIService(ctx, FixtureGroup, "v1"); err != nil {
		t.Fatal(err)
	}
	if _, err := planets.Create(ctx, Object("Planet", "", "earth", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range host.APIServers {
		config, err := host.ConfigFor(i, "ann")
		if err != nil {
			t.Fatal(err)
		}
		checkReader(t, config)
	}
	proxied, err := annex.FrontProxyConfig(0, "ann")
	if err != nil {
		t.Fatal(err)
	}
	checkReader(t, proxied)
}

// abacPolicy lets annex ask and read everything, ann read planets, and the
// aggregator fetch the OpenAPI of annex, which RBAC grants by default.
const abacPolicy = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"system:aggregator","nonResourcePath":"/openapi/*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"annex-apiserver","apiGroup":"*","namespace":"*","resource":"*","nonResourcePath":"*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"ann","apiGroup":"lab.annex.test","resource":"planets","readonly":true}}
`

// checkReader shows that the user of config may read planets and not write them.
func checkReader(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	planets := client.Resource(PlanetResource())
	if _, err := planets.Get(testContext(t), "earth", metav1.GetOptions{}); err != nil {
		t.Errorf("ann cannot read at %s: %v", config.Host, err)
	}
	if err := planets.Delete(testContext(t), "earth", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("ann deletes at %s: %v, want Forbidden", config.Host, err)
	}
}

func TestReplicasNeedAHost(t *testing.T) {
	if _, err := ForTest(t).StartAnnex(t.Context(), AnnexOptions{Replicas: 2}); err == nil {
		t.Error("two standalone replicas start")
	}
}
