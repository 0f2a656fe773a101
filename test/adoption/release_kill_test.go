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

// stage is how far a release has come. Without a mode the whole phase is meant.
type stage struct {
	phase   kubeannexv1alpha1.AnnexedGroupPhase
	serving kubeannexv1alpha1.ServingMode
}

// released is the stage in which annex answers with 410 and the cluster not yet.
var released = stage{kubeannexv1alpha1.PhaseReleaseCuttingOver, kubeannexv1alpha1.ServingReleased}

func (s stage) String() string { return string(s.phase) + string(s.serving) }

// is says that a release is in the stage; it is not when it is over.
func (s stage) is(g *kubeannexv1alpha1.AnnexedGroup) bool {
	return g != nil && g.Status.Phase == s.phase && (s.serving == "" || g.Status.Serving == s.serving)
}

// isPast says that it was.
func (s stage) isPast(g *kubeannexv1alpha1.AnnexedGroup) bool {
	return g == nil || slices.Index(releasePhases, g.Status.Phase) > slices.Index(releasePhases, s.phase)
}

// TestKillDuringRelease kills one process in phases of a release, while writers
// write and informers watch. Whatever the phase, the cluster must serve the group
// at the end, with every object and every acknowledged write, without a client
// that saw an object go, and with owners that dependents name by their new UIDs.
func TestKillDuringRelease(t *testing.T) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	victims := map[string]*env.Process{
		"controller":     cluster.Controller.Replicas[0],
		"replica":        cluster.Annex.Replicas[1].Process,
		"annex-etcd":     cluster.Annex.Etcd.Process,
		"kube-apiserver": cluster.Host.APIServers[1].Process,
	}
	for _, phase := range killedIn(releasePhases, kubeannexv1alpha1.PhaseReleaseCuttingOver) {
		for name, victim := range victims {
			killIn(t, stage{phase: phase}, name, victim)
		}
	}
	// Clients of a kube-apiserver that is away just then must be told, too, when it is back.
	for name, victim := range victims {
		if name == "kube-apiserver" || os.Getenv("ANNEX_ALL_KILLS") != "" {
			killIn(t, released, name, victim)
		}
	}
}

func killIn(t *testing.T, at stage, name string, victim *env.Process) {
	t.Helper()
	t.Run(fmt.Sprintf("%s in %s", name, at), func(t *testing.T) {
		for attempt := range hitAttempts {
			group := fmt.Sprintf("%s-%s-%d.annex.test", name, strings.ToLower(at.String()), attempt)
			if newDoomedRelease(t, group).surviveKill(t, at, victim) || t.Failed() {
				return
			}
		}
		t.Errorf("%d releases were past %s before they could be stopped there", hitAttempts, at)
	})
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

// surviveKill kills the victim while the controller is held in a stage. It
// returns false when that was over before; the release must succeed then, too.
func (r *doomedRelease) surviveKill(t *testing.T, at stage, victim *env.Process) bool {
	t.Helper()
	begin := time.Now()
	r.group.Delete(t)
	hit := r.holdIn(t, at)
	if hit {
		if err := victim.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	goOn(t, suite.cluster.Controller.Process)
	if err := suite.cluster.Heal(scenario.Context(t)); err != nil {
		t.Fatal(err)
	}
	r.group.WaitGone(t)
	t.Logf("%s killed in %s: %t, released %s after the start", victim.Name(), at, hit, time.Since(begin).Round(time.Millisecond))
	r.mustHaveSurvived(t)
	return hit
}

// goOn lets a process run again that was paused and perhaps killed since.
func goOn(t *testing.T, process *env.Process) {
	t.Helper()
	if err := process.Continue(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}

// holdIn pauses the controller when a release is in a stage or beyond it, and
// returns whether it is there. The caller lets it go on.
func (r *doomedRelease) holdIn(t *testing.T, at stage) (hit bool) {
	t.Helper()
	controller := suite.cluster.Controller.Process
	// A test that fails in between must not leave it paused.
	t.Cleanup(func() { goOn(t, controller) })
	r.group.WaitFor(t, at.String(), func(g *kubeannexv1alpha1.AnnexedGroup) bool { return at.is(g) || at.isPast(g) })
	if err := controller.Pause(); err != nil {
		t.Fatal(err)
	}
	// What was stored last decides.
	r.group.WaitFor(t, at.String(), func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		hit = at.is(g)
		return true
	})
	return hit
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
