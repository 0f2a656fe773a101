// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// settling is how long each step of a rotation lasts here; five minutes is for
// clusters whose kubelets are slow to update a mounted Secret.
const settling = "--certificate-settling-time=5s"

// step is a part of the life of a release.
type step struct {
	name string
	run  func(*testing.T)
	// needed says that the next steps cannot do without.
	needed bool
}

// TestRelease is the life of a release with the default values: etcd as a
// StatefulSet, two replicas of all else, certificates by annex itself.
func TestRelease(t *testing.T) {
	g := suite.cluster.NamedGroup("house.annex.test")
	live(t, g, nil,
		step{name: "rotate under load", run: func(t *testing.T) { rotateUnderLoad(t, g) }},
		step{name: "upgrade under load", run: func(t *testing.T) { upgradeUnderLoad(t, g) }},
		step{name: "uninstall is refused", run: func(t *testing.T) { uninstallIsRefused(t, g) }, needed: true},
	)
}

// TestExternalEtcd is the life of a release over an etcd that is not its own.
func TestExternalEtcd(t *testing.T) {
	etcd, err := suite.env.StartEtcd(testContext(t), env.EtcdOptions{Name: "external", TLS: true, RevisionFloor: embedded.DefaultRevisionFloor})
	if err != nil {
		t.Fatal(err)
	}
	if err := env.EnsureNamespace(testContext(t), suite.admin, namespace); err != nil {
		t.Fatal(err)
	}
	suite.kubectl.MustRun(t, "create", "secret", "generic", "my-etcd-client", "--namespace="+namespace,
		"--from-file=ca.crt="+etcd.CAFile, "--from-file=tls.crt="+etcd.CertFile, "--from-file=tls.key="+etcd.KeyFile)
	g := suite.cluster.NamedGroup("lodge.annex.test")
	values := []string{"--set=etcd.mode=external", "--set=etcd.external.endpoints={" + etcd.URL + "}", "--set=etcd.external.secretName=my-etcd-client"}
	live(t, g, values, step{name: "upgrade under load", run: func(t *testing.T) { upgradeUnderLoad(t, g) }})
}

// TestEmbeddedEtcd is the life of the smallest release, whose only replica finds
// its objects again.
func TestEmbeddedEtcd(t *testing.T) {
	g := suite.cluster.NamedGroup("cabin.annex.test")
	live(t, g, []string{"--set=etcd.mode=embedded"}, step{name: "restart", run: func(t *testing.T) { restart(t, g) }})
}

// live runs the life of a release from its installation to its end, with some
// steps in the middle.
func live(t *testing.T, g *scenario.Group, values []string, middle ...step) {
	explainFailure(t)
	before := takeInventory(t)
	steps := slices.Concat(
		[]step{
			{name: "install", run: func(t *testing.T) { install(t, values...) }, needed: true},
			{name: "helm test", run: func(t *testing.T) { mustHelm(t, "test", release, "--timeout=2m") }},
			{name: "adopt", run: func(t *testing.T) { adopt(t, g) }, needed: true},
		},
		middle,
		[]step{
			{name: "give the group back", run: func(t *testing.T) { giveBack(t, g) }, needed: true},
			{name: "uninstall", run: func(t *testing.T) { uninstall(t, g, before) }},
		},
	)
	for _, s := range steps {
		begin := time.Now()
		succeeded := t.Run(s.name, s.run)
		t.Logf("%s took %s", s.name, time.Since(begin).Round(100*time.Millisecond))
		if !succeeded && s.needed {
			t.FailNow()
		}
	}
}

// install installs the chart and finds its API available, with nobody's help.
func install(t *testing.T, values ...string) {
	t.Helper()
	mustHelm(t, slices.Concat([]string{
		"install", release, chart(t), "--create-namespace", "--wait", "--timeout=4m",
		"--set=controller.extraArgs={" + settling + "}",
	}, values)...)
	suite.kubectl.MustRun(t, "wait", "--for=condition=Available", "--timeout=30s", "apiservice/v1alpha1.kubeannex.io")
}

// adopt moves a small group into annex with the plugin and uses it there.
func adopt(t *testing.T, named *scenario.Group) {
	g := suite.cluster.NewGroup(t, named.Name, nil)
	g.Seed(t, 2*listed+100, 20)
	t.Log(plugin(t, "adopt", g.Name, "--wait", "--timeout=2m"))
	for _, version := range []string{"v1", "v1beta1"} {
		service := suite.kubectl.MustRun(t, "get", "apiservice", version+"."+g.Name, "-o", "jsonpath={.spec.service.name}")
		if service != "annex" {
			t.Errorf("requests for %s of %s go to %q, want annex", version, g.Name, service)
		}
	}
	t.Log(plugin(t, "status"))
	object := g.Object("Gadget", g.Namespaces[0], "new", map[string]any{"size": int64(1)})
	client := g.HostClient(t, g.Gadgets("v1")).Namespace(g.Namespaces[0])
	if _, err := client.Create(testContext(t), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(testContext(t), "new", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// rotateUnderLoad has all certificates replaced while clients are busy.
func rotateUnderLoad(t *testing.T, g *scenario.Group) {
	authority := servingAuthority(t)
	l := startLoad(t, g)
	suite.kubectl.MustRun(t, "annotate", "secret", "annex-ca", "--namespace="+namespace, "kubeannex.io/rotate=please")
	err := scenario.Poll(testContext(t), func(context.Context) error {
		annotations := suite.kubectl.MustRun(t, "get", "secret", "annex-ca", "--namespace="+namespace, "-o", "jsonpath={.metadata.annotations}")
		if strings.Contains(annotations, "kubeannex.io/rot") {
			return fmt.Errorf("the rotation goes on: %s", annotations)
		}
		return nil
	})
	if err != nil {
		t.Errorf("the rotation does not end: %v", err)
	}
	l.writers.WaitWrites(t, 100)
	l.mustBeClean(t)
	if servingAuthority(t) == authority {
		t.Error("annex-apiserver presents a certificate of the authority that was to be replaced")
	}
	mustHelm(t, "test", release, "--timeout=2m")
}

// servingAuthority returns the key id of the authority of the certificate that
// the Service of annex-apiserver presents.
func servingAuthority(t *testing.T) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(suite.admin)
	if err != nil {
		t.Fatal(err)
	}
	service, err := client.CoreV1().Services(namespace).Get(testContext(t), "annex", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var authority string
	dialer := &tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true,
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if len(raw) == 0 {
				return errors.New("no certificate")
			}
			leaf, err := x509.ParseCertificate(raw[0])
			if err == nil {
				authority = string(leaf.AuthorityKeyId)
			}
			return err
		},
	}}
	conn, err := dialer.DialContext(testContext(t), "tcp", service.Spec.ClusterIP+":443")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	return authority
}

// upgradeUnderLoad changes a value of both servers, so that all their pods are replaced. Members of etcd stay: a write that
// is under way while the leader of etcd changes may be lost, which etcd and with it any API server says by an error.
func upgradeUnderLoad(t *testing.T, g *scenario.Group) {
	old := podUIDs(t)
	l := startLoad(t, g)
	mustHelm(t, "upgrade", release, chart(t), "--reuse-values", "--wait", "--timeout=4m", "--set=apiserver.logLevel=1", "--set=controller.logLevel=1")
	// Pods that are replaced end after Helm has gone.
	err := scenario.Poll(testContext(t), func(context.Context) error {
		for _, uid := range podUIDs(t) {
			if slices.Contains(old, uid) {
				return fmt.Errorf("a pod of before the upgrade is still there: %s", uid)
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("the upgrade does not end: %v", err)
	}
	l.writers.WaitWrites(t, 100)
	l.mustBeClean(t)
}

// removeGroup deletes the definitions of a group with all objects, some of which
// have a finalizer of the test.
func removeGroup(t *testing.T, g *scenario.Group) {
	t.Helper()
	for _, gvr := range []schema.GroupVersionResource{g.Gadgets("v1"), g.Planets()} {
		client := g.HostClient(t, gvr)
		list, err := client.List(testContext(t), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			item := &list.Items[i]
			if len(item.GetFinalizers()) == 0 {
				continue
			}
			_, err := client.Namespace(item.GetNamespace()).Patch(testContext(t), item.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		suite.kubectl.MustRun(t, "delete", "crd", gvr.GroupResource().String(), "--timeout=60s")
	}
}

// restart deletes the only pod of annex-apiserver and finds the objects again.
func restart(t *testing.T, g *scenario.Group) {
	list := func() string {
		return suite.kubectl.MustRun(t, "get", "gadgets."+g.Name, "--all-namespaces", "-o", "custom-columns=:.metadata.uid,:.metadata.resourceVersion")
	}
	before := list()
	suite.kubectl.MustRun(t, "delete", "pod", "annex-apiserver-0", "--namespace="+namespace, "--timeout=2m")
	suite.kubectl.MustRun(t, "rollout", "status", "statefulset/annex-apiserver", "--namespace="+namespace, "--timeout=2m")
	suite.kubectl.MustRun(t, "wait", "--for=condition=Available", "--timeout=2m", "apiservice/v1."+g.Name)
	if after := list(); after != before {
		t.Errorf("objects before and after the restart differ: %d and %d bytes", len(before), len(after))
	}
}

// podUIDs are those of the pods of the release that do not end by themselves.
func podUIDs(t *testing.T) []string {
	t.Helper()
	return strings.Fields(suite.kubectl.MustRun(t, "get", "pods", "--namespace="+namespace,
		"--selector=app.kubernetes.io/component in (apiserver,controller)", "-o", "jsonpath={.items[*].metadata.uid}"))
}

// uninstallIsRefused finds that an uninstall says why it is refused and harms nothing.
func uninstallIsRefused(t *testing.T, g *scenario.Group) {
	output, err := helm(t, "uninstall", release, "--wait", "--timeout=2m")
	if err == nil {
		t.Fatal("Helm uninstalls although annex has a group")
	}
	if !strings.Contains(output, g.Name) || !strings.Contains(output, "kubectl annex release") {
		t.Errorf("Helm does not say which group stands against it and what to do:\n%s", output)
	}
	suite.kubectl.MustRun(t, "get", "gadgets."+g.Name, "owner", "--namespace="+g.Namespaces[0])
}

// giveBack releases the group.
func giveBack(t *testing.T, g *scenario.Group) {
	t.Log(plugin(t, "release", g.Name, "--allow-new-uids", "--wait", "--timeout=2m"))
	suite.kubectl.MustRun(t, "get", "gadgets."+g.Name, "owner", "--namespace="+g.Namespaces[0])
}

// uninstall leaves nothing but what docs/install.md says it keeps.
func uninstall(t *testing.T, g *scenario.Group, before inventory) {
	mustHelm(t, "uninstall", release, "--wait", "--timeout=3m")
	removeGroup(t, g)
	// The garbage collector takes some seconds.
	ctx, cancel := context.WithTimeout(testContext(t), time.Minute)
	defer cancel()
	err := scenario.Poll(ctx, func(context.Context) error {
		if left := leftovers(t, before); len(left) > 0 {
			return fmt.Errorf("left in the cluster:\n%s", strings.Join(left, "\n"))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// leftovers is what a release has left and was not to.
func leftovers(t *testing.T, before inventory) []string {
	t.Helper()
	kept := []string{
		"configmaps " + namespace + "/annex-ca-bundle",
		"leases.coordination.k8s.io " + namespace + "/annex-controller",
	}
	for _, name := range []string{"ca", "apiserver-tls", "controller-tls", "etcd-ca", "etcd-server-tls", "etcd-peer-tls", "etcd-client-tls"} {
		kept = append(kept, "secrets "+namespace+"/annex-"+name)
	}
	return slices.DeleteFunc(takeInventory(t).added(before), func(line string) bool {
		return slices.Contains(kept, line) ||
			strings.HasPrefix(line, "persistentvolumeclaims "+namespace+"/data-annex-") ||
			strings.HasPrefix(line, "namespaces ") ||
			// Every namespace has these two.
			strings.HasSuffix(line, "/kube-root-ca.crt") || (strings.HasPrefix(line, "serviceaccounts ") && strings.HasSuffix(line, "/default"))
	})
}
