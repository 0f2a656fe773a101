// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// releasePhases are the phases of a release in their order.
var releasePhases = []kubeannexv1alpha1.AnnexedGroupPhase{
	kubeannexv1alpha1.PhaseReleasing,
	kubeannexv1alpha1.PhaseReleaseFencing,
	kubeannexv1alpha1.PhaseReleaseVerifying,
	kubeannexv1alpha1.PhaseReleaseCuttingOver,
	kubeannexv1alpha1.PhaseReleaseUnfencing,
}

// doomedRelease is a group whose release is cut short.
type doomedRelease struct {
	group  *scenario.Group
	family *family
	phase  kubeannexv1alpha1.AnnexedGroupPhase
	victim *env.Process
	before scenario.Snapshot
	owner  *unstructured.Unstructured
}

// TestKillDuringRelease kills the controller or a replica of annex in phases of a
// release. Whatever the phase, the cluster must serve the group at the end,
// with every object, and with owners that dependents name by their new UIDs.
func TestKillDuringRelease(t *testing.T) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	var releases []*doomedRelease
	for _, phase := range killedIn(releasePhases, kubeannexv1alpha1.PhaseReleaseCuttingOver) {
		releases = append(releases,
			newDoomedRelease(t, "controller", phase, cluster.Controller.Replicas[0]),
			newDoomedRelease(t, "replica", phase, cluster.Annex.Replicas[1].Process))
	}
	// All wait together for the last look at the cluster's copies.
	for _, release := range releases {
		release.group.WaitFor(t, "the end of the search for stray writes", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
			return slices.ContainsFunc(g.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == kubeannexv1alpha1.ConditionStrayWrites && c.Reason == "None"
			})
		})
	}
	for _, release := range releases {
		t.Run(fmt.Sprintf("%s in %s", release.victim.Name(), release.phase), func(t *testing.T) { release.run(t) })
	}
}

func newDoomedRelease(t *testing.T, kind string, phase kubeannexv1alpha1.AnnexedGroupPhase, victim *env.Process) *doomedRelease {
	t.Helper()
	name := fmt.Sprintf("%s-%s.annex.test", kind, strings.ToLower(string(phase)))
	r := &doomedRelease{phase: phase, victim: victim, group: suite.cluster.NewGroup(t, name, nil)}
	r.group.Seed(t, 36, 9)
	r.group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{AllowNewUIDs: true})
	r.group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
	r.family = newFamily(t, r.group)
	r.owner = r.family.create(t, r.group.Gadgets("v1"), "born-owner")
	r.family.create(t, configMaps, "born-dependent", r.owner)
	r.family.create(t, r.group.Gadgets("v1"), "born-child", r.owner)
	r.before = r.group.SnapshotOf(t, suite.cluster.HostConfig(t, 0), notBorn)
	return r
}

func notBorn(name string) bool { return !strings.HasPrefix(name, "born-") }

func (r *doomedRelease) run(t *testing.T) {
	begin := time.Now()
	r.group.Delete(t)
	reached := "the end"
	r.group.WaitFor(t, string(r.phase), func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		if g == nil {
			return true
		}
		reached = string(g.Status.Phase)
		return slices.Index(releasePhases, g.Status.Phase) >= slices.Index(releasePhases, r.phase)
	})
	if err := r.victim.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := suite.cluster.Heal(scenario.Context(t)); err != nil {
		t.Fatal(err)
	}
	r.group.WaitGone(t)
	t.Logf("killed %s in %s, released %s after the start", r.victim.Name(), reached, time.Since(begin).Round(time.Millisecond))
	r.group.WaitRouted(t, false)
	for server := range suite.cluster.Host.APIServers {
		r.before.MustEqual(t, r.group.SnapshotOf(t, suite.cluster.HostConfig(t, server), notBorn))
	}
	mustBeLeft(t, r.group)
	owner, err := r.family.resource(r.group.Gadgets("v1")).Get(t.Context(), "born-owner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if owner.GetUID() == r.owner.GetUID() {
		t.Error("an object that the cluster never had kept its UID")
	}
	dependent, err := r.family.resource(configMaps).Get(t.Context(), "born-dependent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	child, err := r.family.resource(r.group.Gadgets("v1")).Get(t.Context(), "born-child", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []*unstructured.Unstructured{dependent, child} {
		if got := object.GetOwnerReferences()[0].UID; got != owner.GetUID() {
			t.Errorf("%s %s names its owner by %s, want %s", object.GetKind(), object.GetName(), got, owner.GetUID())
		}
	}
}
