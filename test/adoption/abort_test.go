// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// TestAbort deletes the AnnexedGroup at every phase before the cut-over: what
// the host stores is the same to the byte and to the revision, and annex keeps nothing.
func TestAbort(t *testing.T) {
	order := scenario.AdoptionPhases()
	for _, phase := range order[:slices.Index(order, kubeannexv1alpha1.PhaseCuttingOver)] {
		t.Run(string(phase), func(t *testing.T) { abortAt(t, phase) })
	}
}

func abortAt(t *testing.T, phase kubeannexv1alpha1.AnnexedGroupPhase) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	group := cluster.NewGroup(t, "abort-"+strings.ToLower(string(phase))+".annex.test", nil)
	group.Seed(t, 60, 20)
	before := group.HostBytes(t)
	recorder := group.Record(t, cluster.HostConfig(t, 0), group.Gadgets("v1"))
	watch := group.RawWatch(t, cluster.HostConfig(t, 1), group.Planets())

	// The controller is held in the phase until the deletion is there.
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	reached := group.WaitReached(t, phase)
	controller := cluster.Controller.Replicas[0]
	if err := controller.Pause(); err != nil {
		t.Fatal(err)
	}
	group.Delete(t)
	if err := controller.Continue(); err != nil {
		t.Fatal(err)
	}
	group.WaitGone(t)
	t.Logf("aborted in phase %s", reached)

	if diff := before.Diff(group.HostBytes(t)); diff != "" {
		t.Errorf("the host's etcd is not what it was:\n%s", diff)
	}
	if keys := group.AnnexKeys(t); len(keys) > 0 {
		t.Errorf("annex still stores %v", keys)
	}
	if err := watch.Resume(t); err != nil {
		t.Errorf("a watch that was open before the adoption: %v", err)
	}
	recorder.MustBeQuietAndAlive(t)
	if lists := recorder.Traffic.Lists(); lists != 1 {
		t.Errorf("%s: an abort makes clients list again", recorder.Summary())
	}
	group.WaitRouted(t, false)
}

// TestStoppingChangesNoRoute stops and kills annex and its controller: no
// APIService changes, and clients get 503 instead of the host's old copies.
func TestStoppingChangesNoRoute(t *testing.T) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	group := cluster.NewGroup(t, "stop.annex.test", nil)
	group.Seed(t, 30, 10)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	adopt(t, group)
	group.MustBeAnnexed(t, before)
	routes := group.APIServices(t)
	if len(routes) != 2 {
		t.Fatalf("APIServices %v, want those of v1 and v1beta1", routes)
	}
	for name, end := range map[string]func(*env.Process) error{
		"stopped": func(process *env.Process) error { return process.Stop(scenario.Context(t)) },
		"killed":  func(process *env.Process) error { return process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			for _, process := range cluster.Controller.Replicas {
				if err := end(process); err != nil {
					t.Fatal(err)
				}
			}
			for _, server := range cluster.Annex.Replicas {
				if err := end(server.Process); err != nil {
					t.Fatal(err)
				}
			}
			mustBeUnavailable(t, group)
			if diff := cmp.Diff(routes, group.APIServices(t)); diff != "" {
				t.Errorf("APIServices (-before +%s):\n%s", name, diff)
			}
			if err := cluster.Heal(scenario.Context(t)); err != nil {
				t.Fatal(err)
			}
			group.MustBeAnnexed(t, before)
			if diff := cmp.Diff(routes, group.APIServices(t)); diff != "" {
				t.Errorf("APIServices (-before +started again):\n%s", diff)
			}
		})
	}
}

// mustBeUnavailable fails the test when a server answers a read with anything but 503.
func mustBeUnavailable(t *testing.T, group *scenario.Group) {
	t.Helper()
	for i := range suite.cluster.Host.APIServers {
		code, body := get(t, suite.cluster.HostConfig(t, i), fmt.Sprintf("/apis/%s/v1/gadgets", group.Name))
		if code != 503 {
			t.Errorf("kube-apiserver %d answers %d %.200s, want 503", i, code, body)
		}
	}
}
