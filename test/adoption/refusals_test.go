// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// mustBeRefused creates the AnnexedGroup, waits for a refusal whose message
// holds all words, and withdraws it: the host has seen nothing of it.
func mustBeRefused(t *testing.T, group *scenario.Group, words ...string) {
	t.Helper()
	before := group.HostBytes(t)
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	condition := group.WaitCondition(t, kubeannexv1alpha1.ConditionPreflightPassed, metav1.ConditionFalse)
	t.Logf("refused: %s", condition.Message)
	for _, word := range words {
		if !strings.Contains(condition.Message, word) {
			t.Errorf("the refusal %q does not say %q", condition.Message, word)
		}
	}
	if strings.Contains(condition.Message, "\n") {
		t.Errorf("the refusal %q has more than one line", condition.Message)
	}
	group.WaitPhase(t, kubeannexv1alpha1.PhasePreflight)
	group.Delete(t)
	group.WaitGone(t)
	mustBeUntouched(t, group, before)
}

// mustBeUntouched fails the test when an adoption that was given up has changed the host's etcd.
func mustBeUntouched(t *testing.T, group *scenario.Group, before scenario.HostBytes) {
	t.Helper()
	after := group.HostBytes(t)
	for _, bytes := range []scenario.HostBytes{before, after} {
		for _, key := range ofOtherReasons {
			delete(bytes, key)
		}
	}
	if diff := before.Diff(after); diff != "" {
		t.Errorf("the adoption changed the host's etcd:\n%.4000s", diff)
	}
}

// ofOtherReasons are keys that change because there are two annexes at one host,
// or because a kube-apiserver finds annex unavailable.
var ofOtherReasons = []string{
	"/registry/validatingwebhookconfigurations/annex-definitions",
	"/registry/validatingadmissionpolicies/annex-routes",
	"/registry/validatingadmissionpolicybindings/annex-routes",
	"/registry/apiregistration.k8s.io/apiservices/v1alpha1.kubeannex.io",
}

// withoutController stops the shared controller until the end of the test.
func withoutController(t *testing.T) {
	t.Helper()
	suite.cluster.HealAfter(t)
	for _, process := range suite.cluster.Controller.Replicas {
		if err := process.Stop(scenario.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// secondCluster starts another annex and controller at the shared host, instead of the first controller.
func secondCluster(t *testing.T, options scenario.Options) *scenario.Cluster {
	t.Helper()
	withoutController(t)
	options.Host = suite.cluster.Host
	cluster, err := scenario.Start(scenario.Context(t), env.ForTest(t), options)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// TestRefusesLowRevision offers an annex whose etcd is younger than the host's:
// watches would wait in silence for revisions that never come.
func TestRefusesLowRevision(t *testing.T) {
	cluster := secondCluster(t, scenario.Options{Name: "young", AnnexEtcd: env.EtcdOptions{RevisionFloor: 2}, AnnexArgs: []string{"--etcd-revision-floor=0"}})
	group := cluster.NewGroup(t, "young.annex.test", nil)
	group.Seed(t, 20, 5)
	mustBeRefused(t, group, "revision")
}

// TestRefusesSmallQuota offers an annex whose etcd cannot hold the copy.
func TestRefusesSmallQuota(t *testing.T) {
	cluster := secondCluster(t, scenario.Options{Name: "tiny", AnnexEtcd: env.EtcdOptions{Args: []string{"--quota-backend-bytes=2000000"}}})
	group := cluster.NewGroup(t, "tiny.annex.test", nil)
	group.Seed(t, 10, 0)
	gadgets := group.HostClient(t, group.Gadgets("v1")).Namespace(group.Namespaces[0])
	for i := range 30 {
		large := group.Object("Gadget", group.Namespaces[0], fmt.Sprintf("large-%d", i), map[string]any{"note": strings.Repeat("x", 100_000)})
		if _, err := gadgets.Create(scenario.Context(t), large, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	mustBeRefused(t, group, "quota")
}

// egressToNowhere makes a kube-apiserver send what is meant for the cluster's
// network to a proxy that is not there, as when konnectivity is broken.
const egressToNowhere = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %s
`

// TestRefusesUnreachable adds a kube-apiserver from which annex cannot be reached.
func TestRefusesUnreachable(t *testing.T) {
	withoutController(t)
	cluster := suite.cluster
	dir := t.TempDir()
	file := filepath.Join(dir, "egress.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, egressToNowhere, filepath.Join(dir, "none.sock")), 0o600); err != nil {
		t.Fatal(err)
	}
	lonely, err := cluster.Host.AddAPIServer(scenario.Context(t), "--egress-selector-config-file="+file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lonely.Kill(); err != nil {
			t.Error(err)
		}
	})
	endpoints := []string{cluster.Host.APIServers[0].URL, cluster.Host.APIServers[1].URL, lonely.URL}
	controller, err := suite.env.StartController(scenario.Context(t), env.ControllerOptions{
		Name: "careful-controller", Host: cluster.Host, Annex: cluster.Annex, Args: []string{"--host-endpoints=" + strings.Join(endpoints, ",")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := controller.Kill(); err != nil {
			t.Error(err)
		}
	})
	group := cluster.NewGroup(t, "lonely.annex.test", nil)
	group.Seed(t, 5, 1)
	mustBeRefused(t, group, "reachable", lonely.URL)
}

// TestRefusesForeignVersion has one version of the group served by somebody else.
func TestRefusesForeignVersion(t *testing.T) {
	group := suite.cluster.NewGroup(t, "mixed.annex.test", nil)
	group.Seed(t, 5, 1)
	client, err := aggregatorclient.NewForConfig(suite.cluster.HostConfig(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	foreign := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v7." + group.Name},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group.Name, Version: "v7", GroupPriorityMinimum: 1000, VersionPriority: 10, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "somebody-else"},
		},
	}
	services := client.ApiregistrationV1().APIServices()
	created, err := services.Create(scenario.Context(t), foreign, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waitUnavailableService(t, created.Name)
	mustBeRefused(t, group, "v7", "kube-system/somebody-else")
	if err := services.Delete(scenario.Context(t), foreign.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	adopt(t, group)
}

// TestRefusesStartUpGroup names a group of a network plugin: the cluster could not
// start without annex, nor annex without it. Who knows better can say so.
func TestRefusesStartUpGroup(t *testing.T) {
	group := suite.cluster.NewGroup(t, "lab.cilium.io", nil)
	group.Seed(t, 20, 5)
	mustBeRefused(t, group, "clusters need this group to start (pod network)", "spec.allowProtectedGroup")
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{AllowProtectedGroup: true})
	group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
}

// TestRefusedNames are groups whose AnnexedGroup cannot be created, or only with a
// warning, because the cluster needs them itself.
func TestRefusedNames(t *testing.T) {
	config, err := suite.cluster.Annex.BalancedConfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	heard := &warnings{}
	config.WarningHandler = heard
	client, err := annexclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		invalid     bool
		wantWarning string
	}{
		"apps":                       {invalid: true},
		"rbac.authorization.k8s.io":  {invalid: true},
		"snapshot.storage.k8s.io":    {invalid: true},
		"kubeannex.io":               {invalid: true},
		"cilium.io":                  {wantWarning: "clusters need this group to start (pod network)"},
		"cert-manager.io":            {wantWarning: "clusters need this group to start (certificates)"},
		"nothing-special.annex.test": {},
	} {
		t.Run(name, func(t *testing.T) {
			*heard = warnings{}
			group := &kubeannexv1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
			_, err := client.KubeannexV1alpha1().AnnexedGroups().Create(scenario.Context(t), group, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if apierrors.IsInvalid(err) != tc.invalid || (err != nil && !tc.invalid) {
				t.Errorf("creating the AnnexedGroup: %v, want invalid: %t", err, tc.invalid)
			}
			if got := strings.Join(*heard, "\n"); !strings.Contains(got, tc.wantWarning) || (tc.wantWarning == "" && got != "") {
				t.Errorf("warning %q, want %q", got, tc.wantWarning)
			}
		})
	}
}

// warnings are the texts of all warning headers.
type warnings []string

var _ rest.WarningHandler = (*warnings)(nil)

// HandleWarningHeader keeps a warning.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) { *w = append(*w, text) }

// TestRefusesUnknownGroup names a group that has no definition.
func TestRefusesUnknownGroup(t *testing.T) {
	cluster := suite.cluster
	ghost := cluster.NamedGroup("ghost.annex.test")
	ghost.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	condition := ghost.WaitCondition(t, kubeannexv1alpha1.ConditionPreflightPassed, metav1.ConditionFalse)
	for _, word := range []string{"has no CustomResourceDefinition", ghost.Name} {
		if !strings.Contains(condition.Message, word) {
			t.Errorf("the refusal %q does not say %q", condition.Message, word)
		}
	}
	ghost.Delete(t)
	ghost.WaitGone(t)
	if diff := cmp.Diff([]string(nil), ghost.AnnexKeys(t)); diff != "" {
		t.Errorf("annex keeps (-want +got):\n%s", diff)
	}
}
