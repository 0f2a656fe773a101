// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// patchGroup changes the AnnexedGroup by a merge patch.
func patchGroup(t *testing.T, group *scenario.Group, patch string) {
	t.Helper()
	groups := suite.cluster.Groups.KubeannexV1alpha1().AnnexedGroups()
	if _, err := groups.Patch(scenario.Context(t), group.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// mustBeHeld waits until the release of a group is refused for a reason, and returns what is said.
func mustBeHeld(t *testing.T, group *scenario.Group, reason string) string {
	t.Helper()
	refused := group.WaitFor(t, "the refusal", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		return g == nil || progressing(g).Reason == reason
	})
	if refused == nil {
		t.Fatal("the group was released without permission")
	}
	condition := progressing(refused)
	t.Logf("held: %s", condition.Message)
	if condition.Status != metav1.ConditionFalse || refused.Status.Phase != kubeannexv1alpha1.PhaseReleasing ||
		refused.Status.Serving != kubeannexv1alpha1.ServingOpen || strings.Contains(condition.Message, "\n") {
		t.Errorf("a release that is refused must wait, annex open, and say why in one line: %s", scenario.Describe(refused))
	}
	return condition.Message
}

// makeStrays changes a copy of the cluster and adds another, as writes do that
// slip past the fence. It returns their names.
func makeStrays(t *testing.T, group *scenario.Group) []string {
	t.Helper()
	private := group.HostClient(t, group.Gadgets(kubeannexv1alpha1.PrivateVersion)).Namespace(group.Namespaces[0])
	born := group.Object("Gadget", group.Namespaces[0], "stray-born", map[string]any{"note": "never in annex"})
	born.SetAPIVersion(group.Name + "/" + kubeannexv1alpha1.PrivateVersion)
	if _, err := private.Create(scenario.Context(t), born, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"spec":{"note":"past the fence"}}`)
	if _, err := private.Patch(scenario.Context(t), "owner", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	return []string{group.Namespaces[0] + "/owner", group.Namespaces[0] + "/stray-born"}
}

// TestStrayWritesHoldARelease has writes that only the cluster's copies know: a
// release would overwrite one and delete the other, so somebody has to look at them first.
func TestStrayWritesHoldARelease(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "holding.annex.test", nil)
	group.Seed(t, 30, 5)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	adopt(t, group)
	// The private route is open until the last look.
	strays := makeStrays(t, group)
	found := group.WaitFor(t, "the stray writes", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		condition := meta.FindStatusCondition(g.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
		return condition != nil && condition.Reason != kubeannexv1alpha1.ReasonWatching
	})
	condition := meta.FindStatusCondition(found.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
	if condition.Status != metav1.ConditionTrue {
		t.Fatalf("the stray writes were not found: %s", scenario.Describe(found))
	}
	group.MustBeAnnexed(t, before)
	copies := hostCopies(t, group)

	group.Delete(t)
	message := mustBeHeld(t, group, kubeannexv1alpha1.ReasonStrayWrites)
	for _, want := range append(strays, "spec.discardStrayWrites") {
		if !strings.Contains(message, want) {
			t.Errorf("the refusal does not name %q: %s", want, message)
		}
	}
	if diff := copies.Diff(hostCopies(t, group)); diff != "" {
		t.Errorf("the copies changed although the release is refused:\n%s", diff)
	}
	if key := "/registry/" + group.Name + "/gadgets/" + strays[1]; copies[key] == "" {
		t.Errorf("the cluster has no %s among %d copies", key, len(copies))
	}
	group.MustBeAnnexed(t, before)

	patchGroup(t, group, `{"spec":{"discardStrayWrites":true}}`)
	group.WaitGone(t)
	group.WaitRouted(t, false)
	for server := range cluster.Host.APIServers {
		after := group.Snapshot(t, cluster.HostConfig(t, server))
		// The API counts generations itself: the stray write is among them.
		for _, snapshot := range []scenario.Snapshot{before, after} {
			unstructured.RemoveNestedField(snapshot["gadgets/"+strays[0]], "metadata", "generation")
		}
		before.MustEqual(t, after)
	}
	mustBeLeft(t, group)
}

// TestFinalizerRemovedByHand takes the AnnexedGroup away from a group that annex
// serves, as administrators do to what hangs. Nothing happens to the group, and
// another AnnexedGroup takes it up as it is.
func TestFinalizerRemovedByHand(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "orphaned.annex.test", nil)
	group.Seed(t, 30, 5)
	adopt(t, group)
	gadgets := group.HostClient(t, group.Gadgets("v1")).Namespace(group.Namespaces[0])
	born, err := gadgets.Create(scenario.Context(t), group.Object("Gadget", group.Namespaces[0], "born-owner", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	group.Delete(t)
	mustBeHeld(t, group, kubeannexv1alpha1.ReasonNewUIDsNeeded)
	recorder := group.Record(t, cluster.HostConfig(t, 1), group.Gadgets("v1"))
	patchGroup(t, group, `{"metadata":{"finalizers":null}}`)
	group.WaitGone(t)
	group.MustBeAnnexed(t, before)

	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	var phases []string
	resumed := group.WaitFor(t, "the resumption", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		if phase := string(g.Status.Phase); !slices.Contains(phases, phase) {
			phases = append(phases, phase)
		}
		return g.Status.Phase == kubeannexv1alpha1.PhaseAnnexed && progressing(g).Reason == "Done"
	})
	for _, phase := range phases {
		if phase != "" && phase != string(kubeannexv1alpha1.PhasePending) && phase != string(kubeannexv1alpha1.PhaseAnnexed) {
			t.Errorf("the group went through %v: it was to be taken up as it is", phases)
		}
	}
	for _, resource := range resumed.Status.Resources {
		if resource.Copied > 0 || resource.HostDigest != "" {
			t.Errorf("%s were copied or verified again: %+v", resource.Resource, resource)
		}
	}
	t.Logf("resumed through %v: %s", phases, scenario.Describe(resumed))
	group.MustBeAnnexed(t, before)
	mustHaveNoPrivateVersion(t, group)
	recorder.MustBeQuietAndAlive(t)
	// Between its creation and the resumption the new object says that nothing is served.
	t.Logf("%s, %d answers 503", recorder.Summary(), recorder.Traffic.Code(http.StatusServiceUnavailable))

	group.Delete(t)
	mustBeHeld(t, group, kubeannexv1alpha1.ReasonNewUIDsNeeded)
	allowNewUIDs(t, group)
	group.WaitGone(t)
	group.WaitRouted(t, false)
	released, err := gadgets.Get(scenario.Context(t), "born-owner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if released.GetUID() == born.GetUID() {
		t.Error("the UID of an object that the cluster never had cannot stay")
	}
	after := group.Snapshot(t, cluster.HostConfig(t, 1))
	for _, snapshot := range []scenario.Snapshot{before, after} {
		delete(snapshot, "gadgets/"+group.Namespaces[0]+"/born-owner")
	}
	before.MustEqual(t, after)
	mustBeLeft(t, group)
}

// TestOversizeObjectStopsTheCopy offers an annex whose etcd takes no object as
// large as one of the group: the condition names it, and the cluster has seen nothing.
func TestOversizeObjectStopsTheCopy(t *testing.T) {
	// A second annex at the shared host would be refused: kube-apiserver does not reach its AnnexedGroups.
	cluster, err := scenario.Start(scenario.Context(t), env.ForTest(t), scenario.Options{
		Name: "narrow", AnnexEtcd: env.EtcdOptions{Args: []string{"--max-request-bytes=150000"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	group := cluster.NewGroup(t, "narrow.annex.test", nil)
	group.Seed(t, 20, 5)
	large := group.Object("Gadget", group.Namespaces[0], "too-large", map[string]any{"note": strings.Repeat("x", 200_000)})
	gadgets := group.HostClient(t, group.Gadgets("v1")).Namespace(group.Namespaces[0])
	if _, err := gadgets.Create(scenario.Context(t), large, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := group.HostBytes(t)
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	stopped := group.WaitFor(t, "the end of the copy", func(g *kubeannexv1alpha1.AnnexedGroup) bool { return progressing(g).Reason == "HeldUp" })
	condition := progressing(stopped)
	t.Logf("stopped in %s: %s", stopped.Status.Phase, condition.Message)
	for _, want := range []string{group.Namespaces[0] + "/too-large", "--max-request-bytes"} {
		if !strings.Contains(condition.Message, want) {
			t.Errorf("the condition does not name %q: %s", want, condition.Message)
		}
	}
	if stopped.Status.Phase != kubeannexv1alpha1.PhaseCopying {
		t.Errorf("the copy goes on in phase %s, want Copying", stopped.Status.Phase)
	}
	group.WaitRouted(t, false)
	group.Delete(t)
	group.WaitGone(t)
	if diff := cmp.Diff([]string(nil), group.AnnexKeys(t)); diff != "" {
		t.Errorf("annex keeps (-want +got):\n%s", diff)
	}
	mustBeUntouched(t, group, before)
}
