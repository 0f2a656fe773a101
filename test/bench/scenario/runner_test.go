// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeannex/annex/test/bench/cluster"
)

// fake is a scenario without servers that writes down what is asked of it.
type fake struct {
	calls []string
	// value is what a round measures.
	value func(call int) (string, float64)
	// fails is the call of Round that fails, from 1 on.
	fails  int
	rounds int
}

func (f *fake) Name() string      { return "fake" }
func (f *fake) Metrics() []Metric { return []Metric{{Name: "calls", Better: Lower}} }

func (f *fake) Sides(*cluster.Cluster) []cluster.Side {
	return []cluster.Side{{Name: "a"}, {Name: "b"}, {Name: "c"}}
}

func (f *fake) Prepare(context.Context, *cluster.Cluster) error {
	f.calls = append(f.calls, "prepare")
	return nil
}

func (f *fake) Round(_ context.Context, _ *cluster.Cluster, side cluster.Side) (Sample, error) {
	f.calls = append(f.calls, side.Name)
	f.rounds++
	if f.rounds == f.fails {
		return Sample{}, errors.New("a wrong answer")
	}
	name, value := f.value(f.rounds)
	return Sample{Metrics: map[string]float64{name: value}}, nil
}

func (f *fake) Close(context.Context) error {
	f.calls = append(f.calls, "close")
	return nil
}

func counting(call int) (string, float64) { return "calls", float64(call) }

func TestRunnerAlternatesSides(t *testing.T) {
	scenario := &fake{value: counting}
	runner := &Runner{Rounds: 2, Progress: t.Logf}
	result, err := runner.Run(t.Context(), scenario)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields("prepare a b c a c b c a b close"), scenario.calls); diff != "" {
		t.Errorf("calls differ (-want +got):\n%s", diff)
	}
	for side, want := range map[string][]float64{"a": {4, 8}, "b": {6, 9}, "c": {5, 7}} {
		if diff := cmp.Diff(want, result.Values(side, "calls")); diff != "" {
			t.Errorf("values of %s differ (-want +got):\n%s", side, diff)
		}
	}
}

// TestInOrder demands that every side comes after every other, and first, equally often.
func TestInOrder(t *testing.T) {
	sides := (&fake{}).Sides(nil)
	var got []string
	for round := range 6 {
		order := ""
		for _, side := range inOrder(sides, round, 0) {
			order += side.Name
		}
		got = append(got, order)
	}
	if diff := cmp.Diff(strings.Fields("abc acb cab cba bca bac"), got); diff != "" {
		t.Errorf("orders differ (-want +got):\n%s", diff)
	}
}

// steps is a fake whose rounds have two steps.
type steps struct{ *fake }

func (s steps) Steps() int { return 2 }
func (s steps) Step(_ context.Context, _ *cluster.Cluster, side cluster.Side, step int) (Sample, error) {
	s.calls = append(s.calls, fmt.Sprint(side.Name, step))
	if step > 0 {
		return Sample{}, nil
	}
	return Sample{Metrics: map[string]float64{"calls": float64(len(s.calls))}}, nil
}

func TestRunnerAlternatesSteps(t *testing.T) {
	scenario := steps{&fake{}}
	result, err := (&Runner{Rounds: 1, Progress: t.Logf}).Run(t.Context(), scenario)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields("prepare a0 b0 c0 b1 c1 a1 a0 c0 b0 b1 a1 c1 close"), scenario.calls); diff != "" {
		t.Errorf("calls differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{10}, result.Values("b", "calls")); diff != "" {
		t.Errorf("what one step has measured differs (-want +got):\n%s", diff)
	}
}

func TestRunnerFails(t *testing.T) {
	for name, tc := range map[string]struct {
		scenario *fake
		want     string
	}{
		"a round fails": {
			scenario: &fake{value: counting, fails: 5},
			want:     "fake: round 1 of 2 on c: a wrong answer",
		},
		"a metric is not declared": {
			scenario: &fake{value: func(int) (string, float64) { return "other", 1 }},
			want:     `fake: warm-up on a: the metric "other" is not declared`,
		},
		"a value is no number": {
			scenario: &fake{value: func(int) (string, float64) { return "calls", math.NaN() }},
			want:     `fake: warm-up on a: the metric "calls" is NaN`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			runner := &Runner{Rounds: 2, Progress: t.Logf}
			_, err := runner.Run(t.Context(), tc.scenario)
			if diff := cmp.Diff(tc.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("error differs (-want +got):\n%s", diff)
			}
			if last := tc.scenario.calls[len(tc.scenario.calls)-1]; last != "close" {
				t.Errorf("the last call is %s, wanted is close", last)
			}
		})
	}
}
