// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement shows in which etcd, and under which key, an object is stored.
package placement

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

// startEtcd runs an etcd that stands for an external one.
func startEtcd(t *testing.T) string {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{RootDir: testserver.ShortTempDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.Endpoints()[0]
}

// createOneOfEach creates a namespaced and a cluster-scoped custom resource and an AnnexedGroup.
func createOneOfEach(t *testing.T, config *rest.Config) {
	t.Helper()
	gadgets, err := env.GadgetCRD()
	if err != nil {
		t.Fatal(err)
	}
	planets, err := env.PlanetCRD()
	if err != nil {
		t.Fatal(err)
	}
	if err := env.InstallCRD(t.Context(), config, gadgets); err != nil {
		t.Fatal(err)
	}
	if err := env.InstallCRD(t.Context(), config, planets); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	create := func(resource dynamic.ResourceInterface, object *unstructured.Unstructured) {
		t.Helper()
		if _, err := resource.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(client.Resource(env.GadgetResource("v1")).Namespace("t"), env.Gadget("t", "g", nil))
	create(client.Resource(env.PlanetResource()), env.Object("Planet", "", "p", nil))
	own, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	group := &kubeannexv1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: "lab.annex.test"}}
	if _, err := own.KubeannexV1alpha1().AnnexedGroups().Create(t.Context(), group, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// keys returns what lies in an etcd below /, but for the bookkeeping of the API server.
func keys(t *testing.T, endpoint string) []string {
	t.Helper()
	client, err := etcdclient.New(context.WithoutCancel(t.Context()), storagebackend.TransportConfig{ServerList: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // it was only read from
	response, err := client.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, kv := range response.Kvs {
		all = append(all, string(kv.Key))
	}
	slices.Sort(all)
	return all
}

func TestPlacement(t *testing.T) {
	tests := map[string]struct {
		// flags get the endpoints of two etcds.
		flags func(first, second string) []string
		// wantFirst and wantSecond are the keys in the two etcds.
		wantFirst, wantSecond []string
	}{
		"one external etcd": {
			flags: func(first, _ string) []string { return []string{"--etcd-servers=" + first} },
			wantFirst: []string{
				"/registry/apiextensions.k8s.io/customresourcedefinitions/gadgets.lab.annex.test",
				"/registry/apiextensions.k8s.io/customresourcedefinitions/planets.lab.annex.test",
				"/registry/kubeannex.io/annexedgroups/lab.annex.test",
				"/registry/lab.annex.test/gadgets/t/g",
				"/registry/lab.annex.test/planets/p",
			},
		},
		"another prefix": {
			flags: func(first, _ string) []string {
				return []string{"--etcd-servers=" + first, "--etcd-prefix=/annex"}
			},
			wantFirst: []string{
				"/annex/apiextensions.k8s.io/customresourcedefinitions/gadgets.lab.annex.test",
				"/annex/apiextensions.k8s.io/customresourcedefinitions/planets.lab.annex.test",
				"/annex/kubeannex.io/annexedgroups/lab.annex.test",
				"/annex/lab.annex.test/gadgets/t/g",
				"/annex/lab.annex.test/planets/p",
			},
		},
		"an etcd of its own for one custom resource": {
			flags: func(first, second string) []string {
				return []string{"--etcd-servers=" + first, "--etcd-servers-overrides=lab.annex.test/gadgets#" + second}
			},
			wantFirst: []string{
				"/registry/apiextensions.k8s.io/customresourcedefinitions/gadgets.lab.annex.test",
				"/registry/apiextensions.k8s.io/customresourcedefinitions/planets.lab.annex.test",
				"/registry/kubeannex.io/annexedgroups/lab.annex.test",
				"/registry/lab.annex.test/planets/p",
			},
			wantSecond: []string{"/registry/lab.annex.test/gadgets/t/g"},
		},
		"etcds of their own beside the embedded one": {
			flags: func(first, second string) []string {
				return []string{"--etcd-servers-overrides=lab.annex.test/gadgets#" + first + ",kubeannex.io/annexedgroups#" + second}
			},
			wantFirst:  []string{"/registry/lab.annex.test/gadgets/t/g"},
			wantSecond: []string{"/registry/kubeannex.io/annexedgroups/lab.annex.test"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			first, second := startEtcd(t), startEtcd(t)
			server := testserver.StartStandalone(t, tc.flags(first, second)...)
			createOneOfEach(t, server.ClientConfig)
			if diff := cmp.Diff(tc.wantFirst, keys(t, first)); diff != "" {
				t.Errorf("keys in the first etcd (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantSecond, keys(t, second)); diff != "" {
				t.Errorf("keys in the second etcd (-want +got):\n%s", diff)
			}
			assertReadable(t, server.ClientConfig)
			assertHealthChecks(t, server.ClientConfig, strings.Contains(strings.Join(tc.flags(first, second), " "), "overrides"))
		})
	}
}

// assertReadable reads what was created, by get, list and watch cache.
func assertReadable(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	gadgets := client.Resource(env.GadgetResource("v1")).Namespace("t")
	if _, err := gadgets.Get(t.Context(), "g", metav1.GetOptions{}); err != nil {
		t.Errorf("get: %v", err)
	}
	for _, resourceVersion := range []string{"", "0"} {
		list, err := gadgets.List(t.Context(), metav1.ListOptions{ResourceVersion: resourceVersion})
		if err != nil {
			t.Errorf("list at %q: %v", resourceVersion, err)
		} else if len(list.Items) != 1 {
			t.Errorf("list at %q: got %d objects, want 1", resourceVersion, len(list.Items))
		}
	}
}

// assertHealthChecks expects a check of every etcd.
func assertHealthChecks(t *testing.T, config *rest.Config, wantOverride bool) {
	t.Helper()
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(body), "[+]shutdown ok"); got != 1 {
		t.Errorf("readiness shows the shutdown check %d times:\n%s", got, body)
	}
	for check, want := range map[string]bool{
		"[+]poststarthook/custom-group-discovery ok": true,
		"[+]etcd ok":                      true,
		"[+]etcd-readiness ok":            true,
		"[+]etcd-revision-floor ok":       true,
		"[+]etcd-override-readiness-0 ok": wantOverride,
	} {
		if got := strings.Contains(string(body), check); got != want {
			t.Errorf("readiness shows %q: %v, want %v:\n%s", check, got, want, body)
		}
	}
}
