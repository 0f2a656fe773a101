// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/kubeannex/annex/test/adoption/scenario"
)

// TestManagedFieldsOfARemovedVersion takes a version away in which fields were
// applied (kubernetes/kubernetes 111937): afterwards every kind of write fares in
// annex as it does on the host, and the clean-up works.
func TestManagedFieldsOfARemovedVersion(t *testing.T) {
	judge := suite.cluster.NewGroup(t, "judge.annex.test", nil)
	annexed := suite.cluster.NewGroup(t, "fields.annex.test", nil)
	for _, group := range []*scenario.Group{judge, annexed} {
		group.Seed(t, 9, 1)
	}
	adopt(t, annexed)
	annexed.WaitRouted(t, true)
	var outcomes []map[string]string
	for _, group := range []*scenario.Group{judge, annexed} {
		removeBeta(t, group)
		outcomes = append(outcomes, writesAfterRemoval(t, group))
	}
	t.Logf("outcomes: %v", outcomes[1])
	if diff := cmp.Diff(outcomes[0], outcomes[1]); diff != "" {
		t.Errorf("outcomes on the host (-) and in annex (+) differ:\n%s", diff)
	}
	for _, write := range []string{"update", "label patch", "apply after the clean-up"} {
		if outcomes[1][write] != "" {
			t.Errorf("%s: %s, want success", write, outcomes[1][write])
		}
	}
}

// removeBeta takes v1beta1 out of the host's definition and waits until the
// objects are served by it.
func removeBeta(t *testing.T, group *scenario.Group) {
	t.Helper()
	client, err := apiextensionsclient.NewForConfig(suite.cluster.HostConfig(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		crd, err := definitions.Get(scenario.Context(t), "gadgets."+group.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i, version := range crd.Spec.Versions {
			if version.Name == "v1beta1" {
				crd.Spec.Versions = append(crd.Spec.Versions[:i], crd.Spec.Versions[i+1:]...)
				break
			}
		}
		_, err = definitions.Update(scenario.Context(t), crd, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range suite.cluster.Host.APIServers {
		err := scenario.Poll(scenario.Context(t), func(context.Context) error {
			if code, _ := get(t, suite.cluster.HostConfig(t, i), "/apis/"+group.Name+"/v1beta1/gadgets"); code != 404 {
				return fmt.Errorf("v1beta1 answers %d", code)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("removing v1beta1 of %s: %v", group.Name, err)
		}
	}
}

// writesAfterRemoval writes in every way to the object whose fields were applied
// in the version that is gone, and returns the errors.
func writesAfterRemoval(t *testing.T, group *scenario.Group) map[string]string {
	t.Helper()
	ctx := scenario.Context(t)
	gadgets := group.HostClient(t, group.Gadgets("v1")).Namespace(group.Namespaces[1])
	const name = "g-00007"
	object, err := gadgets.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fmt.Sprint(object.GetManagedFields()), "v1beta1") {
		t.Fatalf("managed fields %v: none of v1beta1", object.GetManagedFields())
	}
	outcomes := map[string]string{}
	note := func(write string, err error) {
		outcomes[write] = ""
		if err != nil {
			outcomes[write] = strings.ReplaceAll(err.Error(), group.Name, "GROUP")
		}
	}
	apply := []byte(fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Gadget","metadata":{"name":"%s"},"spec":{"color":"applied"}}`, group.Name, name))
	options := metav1.PatchOptions{FieldManager: "applier", Force: new(true)}
	_, err = gadgets.Patch(ctx, name, types.ApplyPatchType, apply, options)
	note("apply", err)
	object.SetLabels(map[string]string{"updated": "yes"})
	_, err = gadgets.Update(ctx, object, metav1.UpdateOptions{})
	note("update", err)
	_, err = gadgets.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{})
	note("label patch", err)
	_, err = gadgets.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`), metav1.PatchOptions{})
	note("clean-up", err)
	_, err = gadgets.Patch(ctx, name, types.ApplyPatchType, apply, options)
	note("apply after the clean-up", err)
	return outcomes
}
