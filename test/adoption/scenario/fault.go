// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/env"
)

const (
	faultGadgets, faultPlanets = 36, 9
	faultWriters               = 2
)

// AdoptionPhases are the phases of an adoption in their order.
func AdoptionPhases() []kubeannexv1alpha1.AnnexedGroupPhase {
	return []kubeannexv1alpha1.AnnexedGroupPhase{
		kubeannexv1alpha1.PhasePreflight,
		kubeannexv1alpha1.PhaseMirroring,
		kubeannexv1alpha1.PhaseCopying,
		kubeannexv1alpha1.PhaseCatchingUp,
		kubeannexv1alpha1.PhaseFencing,
		kubeannexv1alpha1.PhaseVerifying,
		kubeannexv1alpha1.PhaseCuttingOver,
		kubeannexv1alpha1.PhaseUnfencing,
		kubeannexv1alpha1.PhaseAnnexed,
	}
}

// WaitReached waits until the AnnexedGroup is in a phase or beyond it, and
// returns where it is. A phase may be too short to be seen.
func (g *Group) WaitReached(tb testing.TB, phase kubeannexv1alpha1.AnnexedGroupPhase) kubeannexv1alpha1.AnnexedGroupPhase {
	tb.Helper()
	order := AdoptionPhases()
	return g.WaitPhase(tb, order[slices.Index(order, phase):]...).Status.Phase
}

// SurviveKill adopts a small group under load, kills processes with SIGKILL
// when the group reaches a phase, and starts them again. Whatever the phase, the
// group must end annexed, with every object and every acknowledged write, and
// without a client that saw an object go. Writes may fail meanwhile.
func (c *Cluster) SurviveKill(t *testing.T, name string, phase kubeannexv1alpha1.AnnexedGroupPhase, victims ...*env.Process) {
	c.HealAfter(t)
	group := c.NewGroup(t, name, nil)
	group.Seed(t, faultGadgets, faultPlanets)
	servers := c.allHosts(t)
	before := group.Snapshot(t, servers[0])
	recorder := group.Record(t, servers[len(servers)-1], group.Gadgets("v1"))
	writers := group.StartWriters(t, faultWriters, servers...)

	begin := time.Now()
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	reached := group.WaitReached(t, phase)
	for _, victim := range victims {
		if err := victim.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Heal(Context(t)); err != nil {
		t.Fatal(err)
	}
	annexed := group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
	t.Logf("killed %s in phase %s, annexed %s after the start, fence %v",
		victims[0].Name(), reached, time.Since(begin).Round(time.Millisecond), annexed.Status.FenceDuration)
	writers.WaitWrites(t, 10*faultWriters)
	writers.Stop()
	t.Log(writers.Summary())
	group.MustBeAnnexed(t, before)
	writers.MustBeKept(t, group)
	recorder.MustBeQuietAndAlive(t)
	t.Log(recorder.Summary())
}

func (c *Cluster) allHosts(tb testing.TB) []*rest.Config {
	tb.Helper()
	var configs []*rest.Config
	for i := range c.Host.APIServers {
		configs = append(configs, c.HostConfig(tb, i))
	}
	return configs
}

// MustBeAnnexed fails the test unless every kube-apiserver sends the group to
// annex, the fence is gone and the objects are those of the snapshot.
func (g *Group) MustBeAnnexed(tb testing.TB, before Snapshot) {
	tb.Helper()
	g.WaitRouted(tb, true)
	g.MustHaveNoFence(tb)
	for _, config := range g.cluster.allHosts(tb) {
		before.MustEqual(tb, g.Snapshot(tb, config))
	}
	for i := range g.cluster.Annex.Replicas {
		before.MustEqual(tb, g.Snapshot(tb, g.cluster.AnnexConfig(tb, i)))
	}
}

// MustBeOnHost fails the test unless every kube-apiserver answers for the group
// itself, the fence is gone and the objects are those of the snapshot.
func (g *Group) MustBeOnHost(tb testing.TB, before Snapshot) {
	tb.Helper()
	g.WaitRouted(tb, false)
	g.MustHaveNoFence(tb)
	for _, config := range g.cluster.allHosts(tb) {
		before.MustEqual(tb, g.Snapshot(tb, config))
	}
}

// MustHaveNoFence fails the test when the host still holds writes back.
func (g *Group) MustHaveNoFence(tb testing.TB) {
	tb.Helper()
	client, err := kubernetes.NewForConfig(g.cluster.HostConfig(tb, 0))
	if err != nil {
		tb.Fatal(err)
	}
	name := fmt.Sprintf("annex-fence-%s", g.Name)
	_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(Context(tb), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		tb.Errorf("reading the fence %s: %v, want NotFound", name, err)
	}
}
