// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"errors"
	"fmt"
	"os"
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

const (
	// hitAttempts is how many releases are begun to stop one in a phase that may last for milliseconds.
	hitAttempts = 5
	// settlingWrites is how many writes, of all writers together, replace every object that comes and goes.
	settlingWrites = 80
)

// doomedRelease is a group whose release is cut short under load.
type doomedRelease struct {
	group     *scenario.Group
	family    *family
	before    scenario.Snapshot
	owner     *unstructured.Unstructured
	writers   *scenario.Writers
	recorders []*scenario.Recorder
}

// TestKillDuringRelease kills one process in phases of a release, while writers
// write and informers watch. Whatever the phase, the cluster must serve the group
// at the end, with every object and every acknowledged write, without a client
// that saw an object go, and with owners that dependents name by their new UIDs.
func TestKillDuringRelease(t *testing.T) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	for _, phase := range killedIn(releasePhases, kubeannexv1alpha1.PhaseReleaseCuttingOver) {
		for name, victim := range map[string]*env.Process{
			"controller":     cluster.Controller.Replicas[0],
			"replica":        cluster.Annex.Replicas[1].Process,
			"annex-etcd":     cluster.Annex.Etcd.Process,
			"kube-apiserver": cluster.Host.APIServers[1].Process,
		} {
			t.Run(fmt.Sprintf("%s in %s", name, phase), func(t *testing.T) {
				for attempt := range hitAttempts {
					group := fmt.Sprintf("%s-%s-%d.annex.test", name, strings.ToLower(string(phase)), attempt)
					if newDoomedRelease(t, group).surviveKill(t, phase, victim) || t.Failed() {
						return
					}
				}
				t.Errorf("%d releases were past %s before they could be stopped there", hitAttempts, phase)
			})
		}
	}
}

// newDoomedRelease adopts a group under load.
func newDoomedRelease(t *testing.T, name string) *doomedRelease {
	t.Helper()
	cluster := suite.cluster
	r := &doomedRelease{group: cluster.NewGroup(t, name, nil)}
	r.group.Seed(t, 36, 9)
	// What the writers keep is older than the adoption, so its UIDs stay.
	r.writers = r.group.StartWriters(t, 2, cluster.HostConfig(t, 0), cluster.HostConfig(t, 1))
	r.group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{AllowNewUIDs: true})
	r.group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
	r.group.WaitRouted(t, true)
	r.family = newFamily(t, r.group)
	r.owner = r.family.create(t, r.group.Gadgets("v1"), bornOwner)
	r.family.create(t, configMaps, bornDependent, r.owner)
	r.family.create(t, r.group.Gadgets("v1"), bornChild, r.owner)
	r.before = r.group.Snapshot(t, cluster.HostConfig(t, 0))
	for server := range cluster.Host.APIServers {
		r.recorders = append(r.recorders, r.group.Record(t, cluster.HostConfig(t, server), r.group.Gadgets("v1")))
	}
	return r
}

// What is born in annex gets new UIDs, so snapshots and recorders leave it out by its name.
const (
	bornOwner     = scenario.WriterPrefix + "born-owner"
	bornDependent = scenario.WriterPrefix + "born-dependent"
	bornChild     = scenario.WriterPrefix + "born-child"
)

// surviveKill kills the victim while the controller is held in a phase. It
// returns false when the phase was over before; the release must succeed then, too.
func (r *doomedRelease) surviveKill(t *testing.T, phase kubeannexv1alpha1.AnnexedGroupPhase, victim *env.Process) bool {
	t.Helper()
	begin := time.Now()
	r.group.Delete(t)
	reached := r.holdIn(t, phase)
	hit := reached == phase
	if hit {
		if err := victim.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := suite.cluster.Controller.Continue(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	if err := suite.cluster.Heal(scenario.Context(t)); err != nil {
		t.Fatal(err)
	}
	r.group.WaitGone(t)
	t.Logf("%s, held in %s (killed: %t), released %s after the start", victim.Name(), reached, hit, time.Since(begin).Round(time.Millisecond))
	r.mustHaveSurvived(t)
	return hit
}

// holdIn pauses the controller when a release is in a phase or beyond it, and
// returns where it is then, "" when it is over. The caller lets it go on.
func (r *doomedRelease) holdIn(t *testing.T, phase kubeannexv1alpha1.AnnexedGroupPhase) (reached kubeannexv1alpha1.AnnexedGroupPhase) {
	t.Helper()
	controller := suite.cluster.Controller
	// A test that fails in between must not leave it paused.
	t.Cleanup(func() {
		if err := controller.Continue(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	})
	see := func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		if reached = ""; g != nil {
			reached = g.Status.Phase
		}
		return g == nil || slices.Index(releasePhases, reached) >= slices.Index(releasePhases, phase)
	}
	r.group.WaitFor(t, string(phase), see)
	if err := controller.Pause(); err != nil {
		t.Fatal(err)
	}
	r.group.WaitFor(t, "what was stored last", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		see(g)
		return true
	})
	return reached
}

func (r *doomedRelease) mustHaveSurvived(t *testing.T) {
	t.Helper()
	r.group.WaitRouted(t, false)
	r.writers.WaitWrites(t, settlingWrites)
	r.writers.Stop()
	t.Log(r.writers.Summary())
	r.writers.MustBeKept(t, r.group)
	for server := range suite.cluster.Host.APIServers {
		r.before.MustEqual(t, r.group.Snapshot(t, suite.cluster.HostConfig(t, server)))
	}
	for _, recorder := range r.recorders {
		recorder.MustBeQuietAndAlive(t)
		t.Log(recorder.Summary())
	}
	mustBeLeft(t, r.group)
	owner, err := r.family.resource(r.group.Gadgets("v1")).Get(t.Context(), bornOwner, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if owner.GetUID() == r.owner.GetUID() {
		t.Error("an object that the cluster never had kept its UID")
	}
	dependent, err := r.family.resource(configMaps).Get(t.Context(), bornDependent, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	child, err := r.family.resource(r.group.Gadgets("v1")).Get(t.Context(), bornChild, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []*unstructured.Unstructured{dependent, child} {
		if got := object.GetOwnerReferences()[0].UID; got != owner.GetUID() {
			t.Errorf("%s %s names its owner by %s, want %s", object.GetKind(), object.GetName(), got, owner.GetUID())
		}
	}
}
