// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
)

// setHostCopies changes what becomes of the cluster's copies.
func setHostCopies(t *testing.T, group *scenario.Group, policy kubeannexv1alpha1.HostCopiesPolicy) {
	t.Helper()
	groups := suite.cluster.Groups.KubeannexV1alpha1().AnnexedGroups()
	patch := `{"spec":{"hostCopies":"` + string(policy) + `"}}`
	if _, err := groups.Patch(scenario.Context(t), group.Name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// hostCopies are the copies that the cluster's etcd has of a group's objects.
func hostCopies(t *testing.T, group *scenario.Group) scenario.HostBytes {
	t.Helper()
	bytes := group.HostBytes(t)
	maps.DeleteFunc(bytes, func(key, _ string) bool { return !strings.HasPrefix(key, "/registry/"+group.Name+"/") })
	return bytes
}

// TestPurge frees the cluster's etcd, finalizers notwithstanding, and no client
// sees anything. A release then gives every object a new UID, with permission.
func TestPurge(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "purged.annex.test", nil)
	group.Seed(t, 1200, 100)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	adopt(t, group)
	group.WaitRouted(t, true)
	var recorders []*scenario.Recorder
	for _, gvr := range []schema.GroupVersionResource{group.Gadgets("v1"), group.Gadgets("v1beta1"), group.Planets()} {
		recorders = append(recorders, group.Record(t, cluster.HostConfig(t, 1), gvr))
	}
	if copies := hostCopies(t, group); len(copies) == 0 {
		t.Fatal("the cluster keeps no copies after the adoption")
	}

	setHostCopies(t, group, kubeannexv1alpha1.HostCopiesPurge)
	// A purge that was cut short goes on, although the copies are not what was verified any more.
	group.WaitFor(t, "the beginning of the purge", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		return meta.FindStatusCondition(g.Status.Conditions, kubeannexv1alpha1.ConditionHostCopiesPurged) != nil
	})
	cluster.HealAfter(t)
	if err := cluster.Controller.Replicas[0].Kill(); err != nil {
		t.Fatal(err)
	}
	private := group.HostClient(t, group.Gadgets(kubeannexv1alpha1.PrivateVersion))
	if err := private.Namespace(group.Namespaces[1]).Delete(t.Context(), "g-00001", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	t.Logf("killed the controller with %d copies left", len(hostCopies(t, group)))
	if err := cluster.Heal(scenario.Context(t)); err != nil {
		t.Fatal(err)
	}
	condition := group.WaitCondition(t, kubeannexv1alpha1.ConditionHostCopiesPurged, metav1.ConditionTrue)
	t.Log(condition.Message)
	if copies := hostCopies(t, group); len(copies) != 0 {
		t.Errorf("%d copies are left in the cluster's etcd", len(copies))
	}
	for _, recorder := range recorders {
		recorder.MustBeQuietAndAlive(t)
	}
	group.MustBeAnnexed(t, before)

	group.Delete(t)
	refusal := group.WaitFor(t, "the refusal", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		return g == nil || progressing(g).Reason == kubeannexv1alpha1.ReasonNewUIDsNeeded
	})
	if refusal == nil {
		t.Fatal("a purged group was released without permission")
	}
	allowNewUIDs(t, group)
	group.WaitGone(t)
	group.WaitRouted(t, false)
	mustBeSameButUIDs(t, before, group.Snapshot(t, cluster.HostConfig(t, 0)))
	mustBeLeft(t, group)
}

// mustBeSameButUIDs compares everything that the API does not set itself.
func mustBeSameButUIDs(t *testing.T, before, after scenario.Snapshot) {
	t.Helper()
	for _, snapshot := range []scenario.Snapshot{before, after} {
		for _, object := range snapshot {
			metadata := object["metadata"].(map[string]any)
			for _, field := range []string{"uid", "creationTimestamp", "generation", "ownerReferences"} {
				delete(metadata, field)
			}
			if metadata["deletionTimestamp"] != nil {
				metadata["deletionTimestamp"] = "set"
			}
		}
	}
	before.MustEqual(t, after)
}

// TestPurgeIsRefused deletes nothing when a copy is not what was verified.
func TestPurgeIsRefused(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "changed.annex.test", nil)
	group.Seed(t, 50, 10)
	adopt(t, group)
	private := group.HostClient(t, group.Gadgets(kubeannexv1alpha1.PrivateVersion)).Namespace(group.Namespaces[0])
	list, err := private.List(scenario.Context(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := list.Items[0].GetName()
	if _, err := private.Patch(scenario.Context(t), name, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"stray":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	copies := hostCopies(t, group)

	setHostCopies(t, group, kubeannexv1alpha1.HostCopiesPurge)
	refused := group.WaitCondition(t, kubeannexv1alpha1.ConditionHostCopiesPurged, metav1.ConditionFalse)
	t.Log(refused.Message)
	if refused.Reason != "Changed" || !strings.Contains(refused.Message, name) {
		t.Errorf("the refusal is %s %q, want Changed and the name %s", refused.Reason, refused.Message, name)
	}
	if diff := copies.Diff(hostCopies(t, group)); diff != "" {
		t.Errorf("the copies changed:\n%s", diff)
	}
	group.WaitRouted(t, true)
}
