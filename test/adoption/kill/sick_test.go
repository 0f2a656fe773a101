// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package kill

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
)

// maxSilence bounds how long a client is without answers when a replica dies
// without closing its connections: kube-apiserver notices a dead HTTP/2
// connection after about 45 s.
const maxSilence = 75 * time.Second

// TestSilentReplica pauses one replica (kubernetes/kubernetes 141318): requests
// that are stuck on it come to an end, the other replica takes over, and no event is lost.
func TestSilentReplica(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "silent.annex.test", nil)
	group.Seed(t, 30, 5)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
	group.MustBeAnnexed(t, before)
	servers := []*rest.Config{cluster.HostConfig(t, 0), cluster.HostConfig(t, 1)}
	recorders := []*scenario.Recorder{group.Record(t, servers[0], group.Gadgets("v1")), group.Record(t, servers[1], group.Gadgets("v1"))}
	for _, replica := range cluster.Annex.Replicas {
		if err := replica.Pause(); err != nil {
			t.Fatal(err)
		}
		for i, server := range servers {
			begin := time.Now()
			failures := waitAnswer(t, group, server)
			t.Logf("%s paused: kube-apiserver %d answers after %s and %d failures",
				replica.Name(), i, time.Since(begin).Round(time.Millisecond), failures)
		}
		if err := replica.Continue(); err != nil {
			t.Fatal(err)
		}
	}
	for _, recorder := range recorders {
		recorder.MustBeQuietAndAlive(t)
		t.Log(recorder.Summary())
	}
	group.MustBeAnnexed(t, before)
}

// waitAnswer lists until there is an answer and returns how often there was none.
func waitAnswer(t *testing.T, group *scenario.Group, server *rest.Config) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(scenario.Context(t), maxSilence)
	defer cancel()
	client := group.Client(t, server, group.Gadgets("v1"))
	failures := 0
	err := scenario.Poll(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			failures++
		}
		return err
	})
	if err != nil {
		t.Errorf("%s: %v", server.Host, err)
	}
	return failures
}
