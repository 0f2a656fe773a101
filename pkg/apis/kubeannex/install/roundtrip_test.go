// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/fuzzer"
	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

func TestRoundTripTypes(t *testing.T) {
	roundtrip.RoundTripTestForAPIGroup(t, Install, fuzzer.Funcs)
}

func TestDefaults(t *testing.T) {
	cases := map[string]struct {
		phase kubeannexv1alpha1.AnnexedGroupPhase
		want  kubeannexv1alpha1.AnnexedGroupPhase
	}{
		"an absent phase becomes Pending": {want: kubeannexv1alpha1.PhasePending},
		"a phase that is set stays":       {phase: kubeannexv1alpha1.PhaseAnnexed, want: kubeannexv1alpha1.PhaseAnnexed},
	}
	scheme := runtime.NewScheme()
	Install(scheme)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			list := &kubeannexv1alpha1.AnnexedGroupList{Items: []kubeannexv1alpha1.AnnexedGroup{{Status: kubeannexv1alpha1.AnnexedGroupStatus{Phase: tc.phase}}}}
			scheme.Default(list)
			if diff := cmp.Diff(tc.want, list.Items[0].Status.Phase); diff != "" {
				t.Errorf("phase (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPhasesMatch fails when a phase exists in one version only.
func TestPhasesMatch(t *testing.T) {
	internal := []kubeannex.AnnexedGroupPhase{
		kubeannex.PhasePending, kubeannex.PhasePreflight, kubeannex.PhaseMirroring, kubeannex.PhaseCopying,
		kubeannex.PhaseCatchingUp, kubeannex.PhaseFencing, kubeannex.PhaseVerifying, kubeannex.PhaseCuttingOver,
		kubeannex.PhaseUnfencing, kubeannex.PhaseAnnexed, kubeannex.PhaseReleasing, kubeannex.PhaseAborting, kubeannex.PhaseAborted,
	}
	served := []kubeannex.AnnexedGroupPhase{}
	for _, phase := range []kubeannexv1alpha1.AnnexedGroupPhase{
		kubeannexv1alpha1.PhasePending, kubeannexv1alpha1.PhasePreflight, kubeannexv1alpha1.PhaseMirroring, kubeannexv1alpha1.PhaseCopying,
		kubeannexv1alpha1.PhaseCatchingUp, kubeannexv1alpha1.PhaseFencing, kubeannexv1alpha1.PhaseVerifying, kubeannexv1alpha1.PhaseCuttingOver,
		kubeannexv1alpha1.PhaseUnfencing, kubeannexv1alpha1.PhaseAnnexed, kubeannexv1alpha1.PhaseReleasing, kubeannexv1alpha1.PhaseAborting, kubeannexv1alpha1.PhaseAborted,
	} {
		served = append(served, kubeannex.AnnexedGroupPhase(phase))
	}
	if diff := cmp.Diff(internal, served); diff != "" {
		t.Errorf("phases (-internal +served):\n%s", diff)
	}
}

func TestFieldLabels(t *testing.T) {
	cases := map[string]struct {
		label   string
		wantErr bool
	}{
		"name":                     {label: "metadata.name"},
		"phase":                    {label: "status.phase"},
		"namespace has no use":     {label: "metadata.namespace", wantErr: true},
		"a field that is no index": {label: "spec.allowProtectedGroup", wantErr: true},
	}
	scheme := runtime.NewScheme()
	Install(scheme)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			label, value, err := scheme.ConvertFieldLabel(kubeannexv1alpha1.SchemeGroupVersion.WithKind("AnnexedGroup"), tc.label, "v")
			if (err != nil) != tc.wantErr {
				t.Fatalf("ConvertFieldLabel(%q): got error %v, want error %t", tc.label, err, tc.wantErr)
			}
			if err == nil && (label != tc.label || value != "v") {
				t.Errorf("ConvertFieldLabel(%q): got %q, %q", tc.label, label, value)
			}
		})
	}
}
