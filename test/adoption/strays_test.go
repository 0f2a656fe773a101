// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
)

// TestPrivateRouteCloses waits for the last look at the host's copies, a minute
// after an adoption: the definitions are then what they were, but for the
// finalizer, and a write that slipped past the fence is reported by name.
func TestPrivateRouteCloses(t *testing.T) {
	t.Parallel()
	cluster := suite.cluster
	webhook, err := suite.env.StartConversionWebhook()
	if err != nil {
		t.Fatal(err)
	}
	quiet := cluster.NewGroup(t, "quiet.annex.test", webhook)
	stray := cluster.NewGroup(t, "slipped.annex.test", nil)
	quiet.Seed(t, 10, 3)
	quiet.SeedMorphs(t, 5)
	stray.Seed(t, 10, 3)
	before := quiet.Snapshot(t, cluster.HostConfig(t, 0))
	specs := definitionSpecs(t, quiet)
	adopt(t, quiet)
	adopt(t, stray)
	private := schema.GroupVersionResource{Group: stray.Name, Version: kubeannexv1alpha1.PrivateVersion, Resource: "gadgets"}
	patch := []byte(`{"spec":{"note":"past the fence"}}`)
	_, err = stray.HostClient(t, private).Namespace(stray.Namespaces[0]).Patch(scenario.Context(t), "owner", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for group, want := range map[*scenario.Group]metav1.ConditionStatus{quiet: metav1.ConditionFalse, stray: metav1.ConditionTrue} {
		final := group.WaitFor(t, "the last look at the cluster's copies", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
			condition := meta.FindStatusCondition(g.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
			return condition != nil && condition.Reason != "Watching"
		})
		condition := meta.FindStatusCondition(final.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
		if condition.Status != want {
			t.Errorf("%s: StrayWrites is %+v, want %s", group.Name, condition, want)
		}
		if want == metav1.ConditionTrue && !strings.Contains(condition.Message, stray.Namespaces[0]+"/owner") {
			t.Errorf("the message %q does not name the object", condition.Message)
		}
		if want == metav1.ConditionFalse {
			mustHaveNoPrivateVersion(t, group)
		} else if err := group.CheckNoPrivateVersion(t, "gadgets")(scenario.Context(t)); err == nil {
			t.Errorf("%s: the strays cannot be looked at through the private version", group.Name)
		}
	}
	if diff := cmp.Diff(specs, definitionSpecs(t, quiet)); diff != "" {
		t.Errorf("definitions (-before +after):\n%s", diff)
	}
	quiet.MustBeAnnexed(t, before)
}

// definitionSpecs are the specs of all definitions of a group at the host.
func definitionSpecs(t *testing.T, group *scenario.Group) map[string]apiextensionsv1.CustomResourceDefinitionSpec {
	t.Helper()
	specs := map[string]apiextensionsv1.CustomResourceDefinitionSpec{}
	for _, gvr := range group.Resources() {
		specs[gvr.Resource] = group.Definition(t, gvr.Resource).Spec
	}
	return specs
}

// mustHaveNoPrivateVersion waits until the private version is not there any more.
func mustHaveNoPrivateVersion(t *testing.T, group *scenario.Group) {
	t.Helper()
	for _, gvr := range group.Resources() {
		err := scenario.Poll(scenario.Context(t), group.CheckNoPrivateVersion(t, gvr.Resource))
		if err != nil {
			t.Errorf("definition %s: %v", gvr.Resource, err)
		}
	}
}
