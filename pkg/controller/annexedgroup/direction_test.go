// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

func TestDirection(t *testing.T) {
	cases := map[string]struct {
		phase   kubeannexv1alpha1.AnnexedGroupPhase
		deleted bool
		want    kubeannexv1alpha1.AnnexedGroupPhase
	}{
		"an adoption goes on":                              {kubeannexv1alpha1.PhaseCopying, false, kubeannexv1alpha1.PhaseCopying},
		"a deletion before anything happened":              {kubeannexv1alpha1.PhasePending, true, kubeannexv1alpha1.PhaseAborting},
		"a deletion during the checks":                     {kubeannexv1alpha1.PhasePreflight, true, kubeannexv1alpha1.PhaseAborting},
		"a deletion behind the fence":                      {kubeannexv1alpha1.PhaseFencing, true, kubeannexv1alpha1.PhaseAborting},
		"a deletion after the comparison":                  {kubeannexv1alpha1.PhaseVerifying, true, kubeannexv1alpha1.PhaseAborting},
		"a deletion during the cut-over waits for its end": {kubeannexv1alpha1.PhaseCuttingOver, true, kubeannexv1alpha1.PhaseCuttingOver},
		"a deletion while the fence is lifted":             {kubeannexv1alpha1.PhaseUnfencing, true, kubeannexv1alpha1.PhaseUnfencing},
		"a deletion of an annexed group":                   {kubeannexv1alpha1.PhaseAnnexed, true, kubeannexv1alpha1.PhaseReleasing},
		"a deletion of a group that was given up":          {kubeannexv1alpha1.PhaseAborted, true, kubeannexv1alpha1.PhaseAborting},
		"an abort goes on":                                 {kubeannexv1alpha1.PhaseAborting, true, kubeannexv1alpha1.PhaseAborting},
		"a release goes on":                                {kubeannexv1alpha1.PhaseReleaseCuttingOver, true, kubeannexv1alpha1.PhaseReleaseCuttingOver},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			group := &kubeannexv1alpha1.AnnexedGroup{Status: kubeannexv1alpha1.AnnexedGroupStatus{Phase: tc.phase}}
			if tc.deleted {
				group.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			if got := direction(group); got != tc.want {
				t.Errorf("the step of %s is due, want %s", got, tc.want)
			}
			if aborts := tc.want == kubeannexv1alpha1.PhaseAborting && tc.phase != tc.want; tc.deleted && aborts != turnsBack(tc.phase) {
				t.Errorf("turnsBack(%s) is %t, but a deletion leads to %s", tc.phase, turnsBack(tc.phase), tc.want)
			}
		})
	}
}

// TestEveryPhaseHasAStep fails when a phase is added without one.
func TestEveryPhaseHasAStep(t *testing.T) {
	steps := (&Reconciler{}).steps()
	for _, phase := range []kubeannexv1alpha1.AnnexedGroupPhase{
		kubeannexv1alpha1.PhasePending, kubeannexv1alpha1.PhasePreflight, kubeannexv1alpha1.PhaseMirroring, kubeannexv1alpha1.PhaseCopying,
		kubeannexv1alpha1.PhaseCatchingUp, kubeannexv1alpha1.PhaseFencing, kubeannexv1alpha1.PhaseVerifying, kubeannexv1alpha1.PhaseCuttingOver,
		kubeannexv1alpha1.PhaseUnfencing, kubeannexv1alpha1.PhaseAnnexed, kubeannexv1alpha1.PhaseAborting, kubeannexv1alpha1.PhaseAborted,
		kubeannexv1alpha1.PhaseReleasing, kubeannexv1alpha1.PhaseReleaseFencing, kubeannexv1alpha1.PhaseReleaseVerifying,
		kubeannexv1alpha1.PhaseReleaseCuttingOver, kubeannexv1alpha1.PhaseReleaseUnfencing,
	} {
		if steps[phase] == nil {
			t.Errorf("phase %s has no step", phase)
		}
	}
}
