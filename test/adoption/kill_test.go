// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"os"
	"strings"
	"testing"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// killedIn returns all phases for make test-kill, and otherwise those few in
// which a process that dies could do the most harm.
func killedIn(all []kubeannexv1alpha1.AnnexedGroupPhase, few ...kubeannexv1alpha1.AnnexedGroupPhase) []kubeannexv1alpha1.AnnexedGroupPhase {
	if os.Getenv("ANNEX_ALL_KILLS") != "" {
		return all
	}
	return few
}

// TestKill kills the controller and a replica of annex in phases of an adoption.
// The folder kill does the same with the etcds and kube-apiservers.
func TestKill(t *testing.T) {
	cluster := suite.cluster
	for _, phase := range killedIn(scenario.AdoptionPhases(), kubeannexv1alpha1.PhaseVerifying, kubeannexv1alpha1.PhaseCuttingOver) {
		for name, victim := range map[string]*env.Process{
			"controller": cluster.Controller.Replicas[0],
			"replica":    cluster.Annex.Replicas[1].Process,
		} {
			t.Run(fmt.Sprintf("%s in %s", name, phase), func(t *testing.T) {
				cluster.SurviveKill(t, fmt.Sprintf("%s-%s.annex.test", name, strings.ToLower(string(phase))), phase, victim)
			})
		}
	}
}
