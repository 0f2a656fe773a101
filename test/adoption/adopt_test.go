// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
)

const (
	// busyGadgets and busyPlanets are the objects of the adoption under load.
	busyGadgets, busyPlanets = 4000, 1000
	// busyWriters write meanwhile.
	busyWriters = 8
	// maxFence is how long writes may be held back: client-go waits ten times a second.
	maxFence = 9 * time.Second
)

// TestAdoptUnderLoad adopts 5,000 objects of two definitions while 8 writers
// write through both kube-apiservers and informers watch both versions: no write
// fails, none is lost, and no client sees an object go, come or change its UID.
func TestAdoptUnderLoad(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "busy.annex.test", nil)
	begin := time.Now()
	group.Seed(t, busyGadgets, busyPlanets)
	t.Logf("seeded %d objects in %s", busyGadgets+busyPlanets, time.Since(begin).Round(time.Millisecond))
	servers := []*rest.Config{cluster.HostConfig(t, 0), cluster.HostConfig(t, 1)}
	before := group.Snapshot(t, servers[0])
	recorders := []*scenario.Recorder{
		group.Record(t, servers[0], group.Gadgets("v1")),
		group.Record(t, servers[1], group.Gadgets("v1beta1")),
		group.Record(t, servers[1], group.Planets()),
	}
	writers := group.StartWriters(t, busyWriters, servers...)
	writers.WaitWrites(t, 20*busyWriters)

	annexed := adopt(t, group)
	writers.WaitWrites(t, 20*busyWriters)
	writers.Stop()
	t.Log(writers.Summary())
	group.WaitRouted(t, true)

	writers.MustHaveNoErrors(t)
	writers.MustBeKept(t, group)
	for _, server := range servers {
		before.MustEqual(t, group.Snapshot(t, server))
	}
	for _, recorder := range recorders {
		recorder.MustBeQuietAndAlive(t)
		t.Log(recorder.Summary())
	}
	checkStatus(t, group, annexed)
}

// checkStatus looks at what an operator is told after an adoption.
func checkStatus(t *testing.T, group *scenario.Group, annexed *kubeannexv1alpha1.AnnexedGroup) {
	t.Helper()
	if annexed.Status.Serving != kubeannexv1alpha1.ServingOpen {
		t.Errorf("serving is %q, want Open", annexed.Status.Serving)
	}
	if fence := annexed.Status.FenceDuration; fence == nil || fence.Duration <= 0 || fence.Duration > maxFence {
		t.Errorf("fence duration %v, want above 0 and below %s", fence, maxFence)
	}
	want := map[string]bool{}
	for _, gvr := range group.Resources() {
		want[gvr.Resource] = true
	}
	for _, resource := range annexed.Status.Resources {
		delete(want, resource.Resource)
		if resource.Verified != resource.Objects || resource.Copied != resource.Objects || resource.Objects == 0 {
			t.Errorf("%+v: all objects must be copied and verified", resource)
		}
		if resource.Digest == "" || resource.HostDigest == "" {
			t.Errorf("%+v: the digests are missing", resource)
		}
	}
	if len(want) > 0 {
		t.Errorf("the status does not tell of %v", want)
	}
	group.WaitCondition(t, kubeannexv1alpha1.ConditionAnnexed, "True")
}

// TestAdoptManyKinds adopts a protected group with a conversion webhook and with
// an empty kind; afterwards both versions convert in annex.
func TestAdoptManyKinds(t *testing.T) {
	cluster := suite.cluster
	webhook, err := suite.env.StartConversionWebhook()
	if err != nil {
		t.Fatal(err)
	}
	group := cluster.NewGroup(t, "kinds.annex.k8s.io", webhook)
	group.Seed(t, 40, 0)
	group.SeedMorphs(t, 20)
	config := cluster.HostConfig(t, 1)
	before := group.Snapshot(t, config)
	converted := group.SnapshotResource(t, config, group.Morphs("v2"))

	adopt(t, group)
	group.WaitRouted(t, true)
	before.MustEqual(t, group.Snapshot(t, config))
	converted.MustEqual(t, group.SnapshotResource(t, config, group.Morphs("v2")))
	group.WaitCondition(t, kubeannexv1alpha1.ConditionStrayWrites, "False")
	before.MustEqual(t, group.Snapshot(t, config))
	converted.MustEqual(t, group.SnapshotResource(t, config, group.Morphs("v2")))
}
