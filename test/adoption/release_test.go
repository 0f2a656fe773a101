// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
)

// TestReleaseUnderLoad releases a group while writers write: no write fails, none
// is lost, and objects that the cluster had before keep their UIDs.
func TestReleaseUnderLoad(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "loaded.annex.test", nil)
	group.Seed(t, 1000, 200)
	servers := []*rest.Config{cluster.HostConfig(t, 0), cluster.HostConfig(t, 1)}
	writers := group.StartWriters(t, 4, servers...)
	writers.WaitWrites(t, 80)
	// Writers also create objects that come and go.
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{AllowNewUIDs: true})
	group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
	group.WaitRouted(t, true)
	before := group.Snapshot(t, servers[0])
	writers.WaitWrites(t, 80)

	begin := time.Now()
	group.Delete(t)
	phases := followRelease(t, group)
	t.Logf("released after %s: %s", time.Since(begin).Round(time.Millisecond), phases)
	writers.WaitWrites(t, 80)
	writers.Stop()
	t.Log(writers.Summary())
	group.WaitRouted(t, false)

	writers.MustHaveNoErrors(t)
	writers.MustBeKept(t, group)
	for _, server := range servers {
		before.MustEqual(t, group.Snapshot(t, server))
	}
	mustBeLeft(t, group)
}

// followRelease waits until the AnnexedGroup is gone and tells when it was in which phase.
func followRelease(t *testing.T, group *scenario.Group) string {
	t.Helper()
	begin, phases, last := time.Now(), []string{}, kubeannexv1alpha1.AnnexedGroupPhase("")
	group.WaitFor(t, "the end of the object", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		if g != nil && g.Status.Phase != last {
			last = g.Status.Phase
			phases = append(phases, fmt.Sprintf("%s at %s", last, time.Since(begin).Round(time.Millisecond)))
		}
		return g == nil
	})
	return strings.Join(phases, ", ")
}

// mustBeLeft fails the test when a release left something of annex behind.
func mustBeLeft(t *testing.T, group *scenario.Group) {
	t.Helper()
	for _, gvr := range group.Resources() {
		definition := group.Definition(t, gvr.Resource)
		for _, version := range definition.Spec.Versions {
			if version.Name == kubeannexv1alpha1.PrivateVersion {
				t.Errorf("definition %s still has the private version", definition.Name)
			}
		}
		if len(definition.Finalizers) > 0 {
			t.Errorf("definition %s has finalizers %v", definition.Name, definition.Finalizers)
		}
		for name := range definition.Annotations {
			if strings.HasPrefix(name, "kubeannex.io/") {
				t.Errorf("definition %s still has annotation %s", definition.Name, name)
			}
		}
	}
	group.MustHaveNoFence(t)
}

// TestReleaseOfNewObjects asks for permission before objects that were born in
// annex get new UIDs; everything else about them stays.
func TestReleaseOfNewObjects(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "newborn.annex.test", nil)
	group.Seed(t, 60, 20)
	adopt(t, group)
	gadgets := group.HostClient(t, group.Gadgets("v1")).Namespace(group.Namespaces[0])
	ctx := scenario.Context(t)
	owner, err := gadgets.Create(ctx, group.Object("Gadget", group.Namespaces[0], "born-owner", map[string]any{"size": int64(1)}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	child := group.Object("Gadget", group.Namespaces[0], "born-child", map[string]any{"size": int64(2)})
	child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: "Gadget", Name: owner.GetName(), UID: owner.GetUID()}})
	if _, err := gadgets.Create(ctx, child, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := group.SnapshotOf(t, cluster.HostConfig(t, 0), func(name string) bool { return !strings.HasPrefix(name, "born-") })

	group.Delete(t)
	refusal := group.WaitFor(t, "the refusal", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		return g == nil || progressing(g).Reason == kubeannexv1alpha1.ReasonNewUIDsNeeded
	})
	if refusal == nil {
		t.Fatal("the group was released without permission")
	}
	message := progressing(refusal).Message
	for _, want := range []string{"2 gadgets", "born-owner", "born-child", "spec.allowNewUIDs"} {
		if !strings.Contains(message, want) {
			t.Errorf("the refusal does not name %q: %s", want, message)
		}
	}
	group.WaitRouted(t, true)
	allowNewUIDs(t, group)
	group.WaitGone(t)
	group.WaitRouted(t, false)

	before.MustEqual(t, group.SnapshotOf(t, cluster.HostConfig(t, 0), func(name string) bool { return !strings.HasPrefix(name, "born-") }))
	released, err := gadgets.Get(ctx, "born-owner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if released.GetUID() == owner.GetUID() {
		t.Error("the UID of an object that the cluster never had cannot stay")
	}
	dependent, err := gadgets.Get(ctx, "born-child", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := dependent.GetOwnerReferences()[0].UID; got != released.GetUID() {
		t.Errorf("the dependent names its owner by %s, want %s", got, released.GetUID())
	}
	mustBeLeft(t, group)
}

func progressing(group *kubeannexv1alpha1.AnnexedGroup) metav1.Condition {
	for _, condition := range group.Status.Conditions {
		if condition.Type == kubeannexv1alpha1.ConditionProgressing {
			return condition
		}
	}
	return metav1.Condition{}
}

func allowNewUIDs(t *testing.T, group *scenario.Group) {
	t.Helper()
	groups := suite.cluster.Groups.KubeannexV1alpha1().AnnexedGroups()
	_, err := groups.Patch(scenario.Context(t), group.Name, "application/merge-patch+json", []byte(`{"spec":{"allowNewUIDs":true}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReleaseWithConversion writes objects back whose versions a webhook
// converts: the cluster converts again before anybody reads there. Of managedFields
// in the version that is not stored the cluster keeps what it had.
func TestReleaseWithConversion(t *testing.T) {
	cluster := suite.cluster
	webhook, err := suite.env.StartConversionWebhook()
	if err != nil {
		t.Fatal(err)
	}
	group := cluster.NewGroup(t, "converted.annex.test", webhook)
	group.SeedMorphs(t, 20)
	adopt(t, group)
	group.WaitRouted(t, true)
	morphs := group.HostClient(t, group.Morphs("v2")).Namespace(group.Namespaces[0])
	if _, err := morphs.Patch(t.Context(), "m-003", "application/merge-patch+json", []byte(`{"spec":{"colour":"violet"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	config := cluster.HostConfig(t, 1)
	before, converted := group.Snapshot(t, config), group.SnapshotResource(t, config, group.Morphs("v2"))

	group.Delete(t)
	group.WaitGone(t)
	group.WaitRouted(t, false)
	for _, pair := range [][2]scenario.Snapshot{
		{before, group.Snapshot(t, config)}, {converted, group.SnapshotResource(t, config, group.Morphs("v2"))},
	} {
		for _, snapshot := range pair {
			for key, object := range snapshot {
				managed, _, _ := unstructured.NestedSlice(object, "metadata", "managedFields")
				if len(managed) != 1 {
					t.Errorf("%s has %d managers, want the one that created it", key, len(managed))
				}
				unstructured.RemoveNestedField(object, "metadata", "managedFields")
			}
		}
		pair[0].MustEqual(t, pair[1])
	}
	mustBeLeft(t, group)
}

// TestReleaseKeepsDependents lets a real garbage collector watch while owners get new UIDs.
func TestReleaseKeepsDependents(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "owned.annex.test", nil)
	group.Seed(t, 10, 5)
	adopt(t, group)
	startControllerManager(t)
	f := newFamily(t, group)
	owner := f.create(t, group.Gadgets("v1"), "mine-owner")
	doomed := f.create(t, group.Gadgets("v1"), "mine-doomed")
	f.create(t, configMaps, "mine-dependent", owner)
	f.create(t, configMaps, "mine-orphan", doomed)
	// The garbage collector works and knows the group when it deletes this one.
	if err := f.resource(group.Gadgets("v1")).Delete(t.Context(), "mine-doomed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.waitGone(t, configMaps, "mine-orphan")

	group.Delete(t)
	allowNewUIDs(t, group)
	group.WaitGone(t)
	startControllerManager(t)
	released, err := f.resource(group.Gadgets("v1")).Get(t.Context(), "mine-owner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Another pair shows that the garbage collector has seen everything.
	probe := f.create(t, group.Gadgets("v1"), "mine-probe")
	f.create(t, configMaps, "mine-probe", probe)
	if err := f.resource(group.Gadgets("v1")).Delete(t.Context(), "mine-probe", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.waitGone(t, configMaps, "mine-probe")
	err = scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		_, err := f.resource(configMaps).Get(ctx, "mine-dependent", metav1.GetOptions{})
		return err
	})
	if err != nil {
		t.Fatalf("the dependent of an object with a new UID: %v", err)
	}
	dependent, err := f.resource(configMaps).Get(t.Context(), "mine-dependent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := dependent.GetOwnerReferences()[0].UID; got != released.GetUID() {
		t.Errorf("the dependent names its owner by %s, want %s", got, released.GetUID())
	}
}
