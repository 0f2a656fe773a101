// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// TestKill kills the controller and a replica of annex at every phase of an
// adoption. The folder kill does the same with the etcds and kube-apiservers.
func TestKill(t *testing.T) {
	cluster := suite.cluster
	for _, phase := range scenario.AdoptionPhases() {
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
