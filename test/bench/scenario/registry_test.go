// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import "testing"

// TestIndependentComeLast demands that no scenario needs the main cluster after it was stopped.
func TestIndependentComeLast(t *testing.T) {
	last := ""
	var before Scenario
	for _, s := range All(Settings{}) {
		_, independent := s.(Independent)
		switch {
		case independent && last == "":
			if _, ok := before.(*coldStart); !ok {
				t.Errorf("%s is the last scenario on the main cluster: it finds it without annex's group", before.Name())
			}
			last = s.Name()
		case independent:
			last = s.Name()
		case last != "":
			t.Errorf("%s comes after %s, for which the main cluster is stopped", s.Name(), last)
		}
		before = s
	}
	if last == "" {
		t.Error("no scenario is independent")
	}
}
