// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package kill

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	cluster *scenario.Cluster
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) (err error) {
	suite.cluster, err = scenario.Start(ctx, e, scenario.Options{
		APIServers: 2, Replicas: 2, Controllers: 2, ControllerArgs: []string{"--host-request-timeout=3s"},
	})
	return err
}

// TestKill kills the etcds, a kube-apiserver, the whole of annex and the leading
// controller at every phase of an adoption.
func TestKill(t *testing.T) {
	cluster := suite.cluster
	victims := map[string][]*env.Process{
		"annex-etcd":     {cluster.Annex.Etcd.Process},
		"host-etcd":      {cluster.Host.Etcd.Process},
		"kube-apiserver": {cluster.Host.APIServers[0].Process},
		"all-of-annex":   {cluster.Annex.Replicas[0].Process, cluster.Annex.Replicas[1].Process, cluster.Annex.Etcd.Process},
		"controllers":    cluster.Controller.Replicas,
	}
	for _, phase := range scenario.AdoptionPhases() {
		for name, processes := range victims {
			t.Run(fmt.Sprintf("%s in %s", name, phase), func(t *testing.T) {
				cluster.SurviveKill(t, fmt.Sprintf("%s-%s.annex.test", name, strings.ToLower(string(phase))), phase, processes...)
			})
		}
	}
}

// TestLeaderChanges kills the leading controller while the fence holds: the
// other one takes the lead and the adoption ends.
func TestLeaderChanges(t *testing.T) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	for _, phase := range []kubeannexv1alpha1.AnnexedGroupPhase{kubeannexv1alpha1.PhaseFencing, kubeannexv1alpha1.PhaseCuttingOver} {
		t.Run(string(phase), func(t *testing.T) {
			group := cluster.NewGroup(t, "leader-"+strings.ToLower(string(phase))+".annex.test", nil)
			group.Seed(t, 50, 10)
			before := group.Snapshot(t, cluster.HostConfig(t, 0))
			begin := time.Now()
			group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
			group.WaitReached(t, phase)
			leader := cluster.Leader(t)
			if err := leader.Kill(); err != nil {
				t.Fatal(err)
			}
			annexed := group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
			t.Logf("annexed by the other controller %s after the start, fence %v", time.Since(begin).Round(time.Millisecond), annexed.Status.FenceDuration)
			group.MustBeAnnexed(t, before)
			if err := cluster.Heal(scenario.Context(t)); err != nil {
				t.Fatal(err)
			}
		})
	}
}
