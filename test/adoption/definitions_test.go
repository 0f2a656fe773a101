// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// changeDefinition updates a definition at the host and returns the answer.
func changeDefinition(t *testing.T, group *scenario.Group, plural string, change func(*apiextensionsv1.CustomResourceDefinition)) error {
	t.Helper()
	client, err := apiextensionsclient.NewForConfig(suite.cluster.HostConfig(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	var answer error
	err = scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		definition := group.Definition(t, plural)
		change(definition)
		_, answer = client.ApiextensionsV1().CustomResourceDefinitions().Update(ctx, definition, metav1.UpdateOptions{})
		if apierrors.IsConflict(answer) || apierrors.IsTooManyRequests(answer) {
			return answer
		}
		return nil
	})
	return errors.Join(answer, err)
}

// addVersion serves a copy of v1 under another name.
func addVersion(name string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(definition *apiextensionsv1.CustomResourceDefinition) {
		version := *definition.Spec.Versions[0].DeepCopy()
		version.Name, version.Storage, version.Served = name, false, true
		definition.Spec.Versions = append(definition.Spec.Versions, version)
	}
}

// TestDefinitionsAreFollowed changes definitions of a group that is annexed: a
// new field, a new version, a new kind, the end of a version.
func TestDefinitionsAreFollowed(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "follow.annex.test", nil)
	group.Seed(t, 30, 10)
	adopt(t, group)
	ctx, namespace := scenario.Context(t), group.Namespaces[0]
	gadgets := group.HostClient(t, group.Gadgets("v1")).Namespace(namespace)

	err := changeDefinition(t, group, "gadgets", func(definition *apiextensionsv1.CustomResourceDefinition) {
		for i := range definition.Spec.Versions {
			schema := definition.Spec.Versions[i].Schema.OpenAPIV3Schema
			if spec, ok := schema.Properties["spec"]; ok {
				spec.Properties["fresh"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = scenario.Poll(ctx, func(ctx context.Context) error {
		n++
		created, err := gadgets.Create(ctx, group.Object("Gadget", namespace, fmt.Sprintf("fresh-%d", n), map[string]any{"fresh": "yes"}), metav1.CreateOptions{})
		if err == nil && created.Object["spec"].(map[string]any)["fresh"] != "yes" {
			err = errors.New("the new field was pruned")
		}
		return err
	})
	if err != nil {
		t.Errorf("a new field: %v", err)
	}

	if err := changeDefinition(t, group, "gadgets", addVersion("v2")); err != nil {
		t.Fatal(err)
	}
	mustBeServedByAnnex(t, group, "v2")
	err = changeDefinition(t, group, "gadgets", func(definition *apiextensionsv1.CustomResourceDefinition) {
		for i := range definition.Spec.Versions {
			if definition.Spec.Versions[i].Name == "v2" {
				definition.Spec.Versions[i].Served = false
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	err = scenario.Poll(ctx, func(ctx context.Context) error {
		_, err := group.HostClient(t, group.Gadgets("v2")).List(ctx, metav1.ListOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("want 404, got %w", errors.Join(err, errors.New("or a list")))
		}
		return nil
	})
	if err != nil {
		t.Errorf("a version that is not served any more: %v", err)
	}
	testNewKind(t, group)
}

// mustBeServedByAnnex fails the test when any answer of a version comes from the host.
func mustBeServedByAnnex(t *testing.T, group *scenario.Group, version string) {
	t.Helper()
	for server := range suite.cluster.Host.APIServers {
		client := group.Client(t, suite.cluster.HostConfig(t, server), group.Gadgets(version))
		err := scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
			list, err := client.List(ctx, metav1.ListOptions{Limit: 1})
			if err == nil && !scenario.FromAnnex(list.GetResourceVersion()) {
				t.Errorf("version %s is served by the host at revision %s", version, list.GetResourceVersion())
			}
			return err
		})
		if err != nil {
			t.Errorf("version %s: %v", version, err)
		}
	}
}

func testNewKind(t *testing.T, group *scenario.Group) {
	t.Helper()
	webhook, err := suite.env.StartConversionWebhook()
	if err != nil {
		t.Fatal(err)
	}
	crd, err := env.MorphCRD(webhook)
	if err != nil {
		t.Fatal(err)
	}
	group.Install(t, crd)
	group.WaitRouted(t, true)
	group.SeedMorphs(t, 3)
	definition := group.Definition(t, "morphs")
	if len(definition.Finalizers) == 0 || definition.Finalizers[len(definition.Finalizers)-1] != kubeannexv1alpha1.DefinitionFinalizer {
		t.Errorf("the new definition has finalizers %v, want %s", definition.Finalizers, kubeannexv1alpha1.DefinitionFinalizer)
	}
}

// TestForeignVersionIsRefused does not let a definition serve a version that annex cannot.
func TestForeignVersionIsRefused(t *testing.T) {
	group := suite.cluster.NewGroup(t, "foreign.annex.test", nil)
	group.Seed(t, 5, 2)
	adopt(t, group)
	client, err := aggregatorclient.NewForConfig(suite.cluster.HostConfig(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	foreign := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v7." + group.Name},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group.Name, Version: "v7", GroupPriorityMinimum: 1000, VersionPriority: 7,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "somebody"}, InsecureSkipTLSVerify: true,
		},
	}
	if _, err := client.ApiregistrationV1().APIServices().Create(scenario.Context(t), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Nobody answers for it, and releases of other tests need the whole of discovery.
		if err := client.ApiregistrationV1().APIServices().Delete(context.WithoutCancel(t.Context()), foreign.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	err = changeDefinition(t, group, "gadgets", addVersion("v7"))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "default/somebody") {
		t.Errorf("the answer is %v, want a refusal that names the service", err)
	}
}

// TestDefinitionIsDeleted deletes a definition of a group that is annexed: first
// its objects go in annex, where finalizers are honoured, then the definition.
func TestDefinitionIsDeleted(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "deleted.annex.test", nil)
	group.Seed(t, 60, 20)
	adopt(t, group)
	ctx := scenario.Context(t)
	client, err := apiextensionsclient.NewForConfig(cluster.HostConfig(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, "gadgets."+group.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	group.WaitCondition(t, kubeannexv1alpha1.ConditionMirrored, metav1.ConditionFalse)
	gadgets := group.HostClient(t, group.Gadgets("v1"))
	err = scenario.Poll(ctx, func(ctx context.Context) error {
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, "gadgets."+group.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		list, listErr := gadgets.List(ctx, metav1.ListOptions{})
		if listErr == nil {
			// Somebody has to take care of the finalizers.
			for _, gadget := range list.Items {
				_, _ = gadgets.Namespace(gadget.GetNamespace()).Patch(ctx, gadget.GetName(), "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			}
		}
		return errors.Join(err, errors.New("the definition is there still"))
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := group.HostClient(t, group.Planets()).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 20 || !scenario.FromAnnex(list.GetResourceVersion()) {
		t.Errorf("the other kind of the group: %v, want 20 objects of annex", err)
	}
	for name := range group.APIServices(t) {
		if strings.HasPrefix(name, "v1beta1.") {
			err := scenario.Poll(ctx, func(context.Context) error {
				if _, found := group.APIServices(t)[name]; found {
					return fmt.Errorf("%s is left", name)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}
