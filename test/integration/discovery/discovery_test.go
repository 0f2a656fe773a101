// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discovery shows that old and new clients find the same groups.
package discovery

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/test/env"
)

const (
	plain      = "application/json"
	aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// get asks for a path in one of the two forms.
func get(ctx context.Context, client rest.Interface, path, accept string, into any) error {
	body, err := client.Get().AbsPath(path).SetHeader("Accept", accept).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// plainVersions returns the versions of every group, best first, as clients before Kubernetes 1.26 see them.
func plainVersions(t *testing.T, client rest.Interface) map[string][]string {
	t.Helper()
	var list metav1.APIGroupList
	if err := get(t.Context(), client, "/apis", plain, &list); err != nil {
		t.Fatal(err)
	}
	versions := map[string][]string{}
	for _, group := range list.Groups {
		for _, v := range group.Versions {
			versions[group.Name] = append(versions[group.Name], v.Version)
		}
		if group.PreferredVersion != group.Versions[0] {
			t.Errorf("group %s prefers %s, not its first version", group.Name, group.PreferredVersion.Version)
		}
		var one metav1.APIGroup
		if err := get(t.Context(), client, "/apis/"+group.Name, plain, &one); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(group.Versions, one.Versions); diff != "" {
			t.Errorf("/apis and /apis/%s differ (-list +group):\n%s", group.Name, diff)
		}
	}
	return versions
}

func aggregatedVersions(t *testing.T, client rest.Interface) map[string][]string {
	t.Helper()
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := get(t.Context(), client, "/apis", aggregated, &list); err != nil {
		t.Fatal(err)
	}
	versions := map[string][]string{}
	for _, group := range list.Items {
		for _, v := range group.Versions {
			versions[group.Name] = append(versions[group.Name], v.Version)
			assertSameResources(t, client, group.Name, v)
		}
	}
	return versions
}

// assertSameResources compares the resources of a version in both forms.
func assertSameResources(t *testing.T, client rest.Interface, group string, version apidiscoveryv2.APIVersionDiscovery) {
	t.Helper()
	var list metav1.APIResourceList
	if err := get(t.Context(), client, "/apis/"+group+"/"+version.Version, plain, &list); err != nil {
		t.Fatal(err)
	}
	var plainNames, aggregatedNames []string
	for _, resource := range list.APIResources {
		plainNames = append(plainNames, resource.Name)
	}
	for _, resource := range version.Resources {
		aggregatedNames = append(aggregatedNames, resource.Resource)
		for _, subresource := range resource.Subresources {
			aggregatedNames = append(aggregatedNames, resource.Resource+"/"+subresource.Subresource)
		}
	}
	slices.Sort(plainNames)
	slices.Sort(aggregatedNames)
	if diff := cmp.Diff(plainNames, aggregatedNames); diff != "" {
		t.Errorf("resources of %s/%s (-plain +aggregated):\n%s", group, version.Version, diff)
	}
}

func TestDiscovery(t *testing.T) {
	config := testserver.StartStandalone(t).ClientConfig
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client := kube.Discovery().RESTClient()
	own := map[string][]string{"apiextensions.k8s.io": {"v1"}, "kubeannex.io": {"v1alpha1"}}
	withGadgets := map[string][]string{"apiextensions.k8s.io": {"v1"}, "kubeannex.io": {"v1alpha1"}, env.FixtureGroup: {"v1", "v1beta1"}}

	assert := func(t *testing.T, want map[string][]string) {
		t.Helper()
		if diff := cmp.Diff(want, plainVersions(t, client)); diff != "" {
			t.Errorf("plain discovery (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, aggregatedVersions(t, client)); diff != "" {
			t.Errorf("aggregated discovery (-want +got):\n%s", diff)
		}
	}
	t.Run("the server's own groups", func(t *testing.T) { assert(t, own) })

	gadgets, err := env.GadgetCRD()
	if err != nil {
		t.Fatal(err)
	}
	if err := env.InstallCRD(t.Context(), config, gadgets); err != nil {
		t.Fatal(err)
	}
	waitUntilListed(t, client, true)
	t.Run("with a definition", func(t *testing.T) { assert(t, withGadgets) })
	t.Run("the definition is in both OpenAPI documents, beside the server's own group", func(t *testing.T) {
		for path, wants := range map[string][]string{
			"/openapi/v2": {"/apis/" + env.FixtureGroup + "/v1/namespaces/{namespace}/gadgets", "/apis/kubeannex.io/v1alpha1/annexedgroups", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"},
			"/openapi/v3": {"apis/" + env.FixtureGroup + "/v1beta1", "apis/kubeannex.io/v1alpha1", "apis/apiextensions.k8s.io/v1"},
		} {
			for _, want := range wants {
				waitUntilServed(t, client, path, want)
			}
		}
	})

	name := gadgets.Name
	if err := definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUntilListed(t, client, false)
	t.Run("after the definition is gone", func(t *testing.T) { assert(t, own) })
}

// waitUntilListed waits until both forms agree about the group of the fixtures. Discovery follows definitions with a delay, as in kube-apiserver.
func waitUntilListed(t *testing.T, client rest.Interface, want bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var plainList metav1.APIGroupList
		if err := get(ctx, client, "/apis", plain, &plainList); err != nil {
			return false, err
		}
		var aggregatedList apidiscoveryv2.APIGroupDiscoveryList
		if err := get(ctx, client, "/apis", aggregated, &aggregatedList); err != nil {
			return false, err
		}
		inPlain := slices.ContainsFunc(plainList.Groups, func(g metav1.APIGroup) bool { return g.Name == env.FixtureGroup })
		inAggregated := slices.ContainsFunc(aggregatedList.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool {
			return g.Name == env.FixtureGroup && len(g.Versions) == 2
		})
		return inPlain == want && inAggregated == want, nil
	})
	if err != nil {
		t.Fatalf("group in discovery: want %v: %v", want, err)
	}
}

func waitUntilServed(t *testing.T, client rest.Interface, path, want string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		body, err := client.Get().AbsPath(path).DoRaw(ctx)
		return strings.Contains(string(body), want), err
	})
	if err != nil {
		t.Errorf("%s does not show %s: %v", path, want, err)
	}
}
