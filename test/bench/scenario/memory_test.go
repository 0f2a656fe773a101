// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeannex/annex/test/bench/dataset"
)

func TestPer(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes int64
		count int
		want  float64
	}{
		"as many objects as memory is given for": {bytes: 800, count: perObjects, want: 800},
		"fewer objects":                          {bytes: 200, count: perObjects / 4, want: 800},
		"less memory than without objects":       {bytes: -10, count: perObjects / 2, want: -20},
	} {
		t.Run(name, func(t *testing.T) {
			if got := per(tc.bytes, tc.count); got != tc.want {
				t.Errorf("per(%d, %d) is %v, wanted is %v", tc.bytes, tc.count, got, tc.want)
			}
		})
	}
}

// TestServings compares what is read with what the definitions serve.
func TestServings(t *testing.T) {
	for _, how := range servings() {
		t.Run(how.name, func(t *testing.T) {
			var want []string
			for _, version := range dataset.Definition(dataset.HostGroup, dataset.Endpoints, how.options).Spec.Versions {
				want = append(want, version.Name)
				if fields := len(version.SelectableFields) > 0; fields == (how.name == servedPlain) {
					t.Errorf("%s has selectable fields: %t", version.Name, fields)
				}
			}
			if diff := cmp.Diff(want, how.versions()); diff != "" {
				t.Errorf("versions differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBootRounds(t *testing.T) {
	for name, tc := range map[string]struct {
		asked int
		smoke bool
		want  int
	}{
		"full":                     {asked: 5, want: mostBoots},
		"smoke":                    {asked: 5, smoke: true, want: smokeBoots},
		"fewer than in smoke runs": {asked: 1, smoke: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got, warmup := bootRounds(tc.asked, tc.smoke); got != tc.want || warmup != 0 {
				t.Errorf("bootRounds(%d, %t) is %d after %d, wanted is %d after 0", tc.asked, tc.smoke, got, warmup, tc.want)
			}
		})
	}
}
