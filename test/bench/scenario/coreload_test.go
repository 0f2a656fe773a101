// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPacedCountsFromWhenItWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var due, took []time.Duration
		// The first one takes two and a half paces, the others nothing.
		err := paced(t.Context(), start, start.Add(5*corePace), func(_ context.Context, at time.Time) error {
			if len(due) == 0 {
				<-time.After(corePace * 5 / 2)
			}
			due, took = append(due, at.Sub(start)), append(took, time.Since(at))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wantDue := []time.Duration{0, corePace, 2 * corePace, 3 * corePace, 4 * corePace}
		if diff := cmp.Diff(wantDue, due); diff != "" {
			t.Errorf("due (-want +got):\n%s", diff)
		}
		wantTook := []time.Duration{corePace * 5 / 2, corePace * 3 / 2, corePace / 2, 0, 0}
		if diff := cmp.Diff(wantTook, took); diff != "" {
			t.Errorf("took (-want +got):\n%s", diff)
		}
	})
}

func TestPacedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		start, calls := time.Now(), 0
		err := paced(t.Context(), start, start.Add(5*corePace), func(context.Context, time.Time) error {
			calls++
			return broken
		})
		if !errors.Is(err, broken) || calls != 1 {
			t.Errorf("error %v after %d calls", err, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := paced(ctx, start.Add(corePace), start.Add(5*corePace), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want the one of the context", err)
		}
	})
}
