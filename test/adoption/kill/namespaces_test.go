// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package kill

import (
	"testing"
	"time"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
)

// TestNamespaceDeletionWithoutAnnex deletes a namespace while annex is down
// (kubernetes/kubernetes 119662): it stays, says why, and ends by itself when
// annex is back. kube-controller-manager tries again after a minute or two.
func TestNamespaceDeletionWithoutAnnex(t *testing.T) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	group := cluster.NewGroup(t, "spaces.annex.test", nil)
	const namespace = "doomed"
	group.FillNamespace(t, namespace)
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
	if err := cluster.Host.StartControllerManager(scenario.Context(t)); err != nil {
		t.Fatal(err)
	}
	for _, server := range cluster.Annex.Replicas {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	cluster.DeleteNamespace(t, namespace)
	cluster.WaitNamespaceStuck(t, namespace)
	t.Logf("stuck after %s", time.Since(begin).Round(time.Millisecond))
	begin = time.Now()
	if err := cluster.Heal(scenario.Context(t)); err != nil {
		t.Fatal(err)
	}
	group.RemoveHold(t, namespace)
	group.WaitNamespaceGone(t, namespace)
	t.Logf("gone %s after annex came back", time.Since(begin).Round(time.Millisecond))
}
