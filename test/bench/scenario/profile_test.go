// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProfilable(t *testing.T) {
	var left []string
	for _, s := range All(Settings{}) {
		if !profilable(s) {
			left = append(left, s.Name())
		}
	}
	if diff := cmp.Diff([]string{"cold-start", "list-large", "memory", "adoption"}, left); diff != "" {
		t.Errorf("scenarios that are left out differ (-want +got):\n%s", diff)
	}
}

func TestWorkWhile(t *testing.T) {
	broken := errors.New("a wrong answer")
	for name, tc := range map[string]struct {
		// failing is the round of work that fails, from 1 on.
		failing    int
		wait       error
		wantRounds int
		wantError  error
	}{
		"work goes on until a profile is made": {wantRounds: 3},
		"a profile that fails":                 {wait: broken, wantRounds: 3, wantError: broken},
		"work that fails ends the profile":     {failing: 2, wantRounds: 2, wantError: broken},
	} {
		t.Run(name, func(t *testing.T) {
			enough, waited, rounds := make(chan struct{}), make(chan struct{}), 0
			work := func(context.Context) error {
				rounds++
				if rounds == tc.failing {
					return broken
				}
				if rounds == tc.wantRounds {
					close(enough)
					<-waited
				}
				return nil
			}
			var ended error
			err := (&Runner{}).workWhile(t.Context(), work, func(ctx context.Context) error {
				defer close(waited)
				select {
				case <-enough:
				case <-ctx.Done():
					ended = ctx.Err()
				}
				return tc.wait
			})
			if !errors.Is(err, tc.wantError) {
				t.Errorf("the error is %v, wanted is %v", err, tc.wantError)
			}
			// The answer of a profile may come a round later than it was made.
			if rounds < tc.wantRounds {
				t.Errorf("%d rounds were played, wanted are %d", rounds, tc.wantRounds)
			}
			if (ended != nil) != (tc.failing > 0) {
				t.Errorf("the profile was ended by %v", ended)
			}
		})
	}
}
