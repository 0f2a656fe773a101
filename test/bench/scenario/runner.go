// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/measure"
)

// closeTimeout bounds Close, which also runs after an interrupt.
const closeTimeout = time.Minute

// Runner runs scenarios on a cluster.
type Runner struct {
	Cluster *cluster.Cluster
	// Rounds is how often every side is measured after one round that is thrown away.
	Rounds int
	// Profiles is the folder for profiles of the API servers, of each one for every
	// side of every scenario that is not Independent, made in further rounds that are not
	// measured. Empty means none.
	Profiles string
	// Progress is told what happens, one line each.
	Progress func(format string, args ...any)
}

// Result is what a scenario has measured.
type Result struct {
	Scenario string
	Metrics  []Metric
	// Sides are the names in the order of the columns. The first is what ratios are to.
	Sides []string
	// Samples are the measured rounds of every side, in their order.
	Samples map[string][]Sample
	// Warmup is how many rounds before those were thrown away.
	Warmup int
	// Duration is how long all rounds took, preparation included.
	Duration time.Duration
}

// Values returns the values of one metric on one side, in the order of the
// rounds. It is empty for a metric that has no meaning on that side.
func (r *Result) Values(side, metric string) []float64 {
	var values []float64
	for _, sample := range r.Samples[side] {
		if value, ok := sample.Metrics[metric]; ok {
			values = append(values, value)
		}
	}
	return values
}

// LoadCores returns how many cores the load generator kept busy in each round on a side.
func (r *Result) LoadCores(side string) []float64 {
	var values []float64
	for _, sample := range r.Samples[side] {
		values = append(values, sample.LoadCores)
	}
	return values
}

// Run prepares a scenario, measures every side in every round, each round and each
// step of it in another order and once all servers are quiet, and closes the scenario.
func (r *Runner) Run(ctx context.Context, s Scenario) (result *Result, err error) {
	start := time.Now()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if closeErr := s.Close(closing); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: closing: %w", s.Name(), closeErr))
		}
	}()
	r.Progress("%s: preparing", s.Name())
	if err := s.Prepare(ctx, r.Cluster); err != nil {
		return nil, fmt.Errorf("%s: preparing: %w", s.Name(), err)
	}
	sides := r.sidesOf(s)
	result = &Result{Scenario: s.Name(), Metrics: s.Metrics(), Samples: map[string][]Sample{}}
	_, result.Warmup = RoundsOf(s, r.Rounds)
	for _, side := range sides {
		result.Sides = append(result.Sides, side.Name)
	}
	if err := r.rounds(ctx, s, sides, result); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	if r.Profiles != "" {
		if err := r.profile(ctx, s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name(), err)
		}
	}
	result.Duration = time.Since(start)
	return result, nil
}

func (r *Runner) sidesOf(s Scenario) []cluster.Side {
	if sided, ok := s.(Sided); ok {
		return sided.Sides(r.Cluster)
	}
	return r.Cluster.Sides()
}

// RoundsOf is how many rounds of a scenario are measured when so many are asked for, and how
// many before that are thrown away.
func RoundsOf(s Scenario, asked int) (measured, warmup int) {
	if paced, ok := s.(Paced); ok {
		return paced.Rounds(asked)
	}
	return asked, 1
}

// rounds measures every side in every round and adds what was measured to the result.
func (r *Runner) rounds(ctx context.Context, s Scenario, sides []cluster.Side, result *Result) error {
	measured, warmup := RoundsOf(s, r.Rounds)
	for round := range warmup + measured {
		r.Progress("%s: %s", s.Name(), roundName(round, warmup, measured))
		samples, err := r.round(ctx, s, sides, round)
		if err != nil {
			return fmt.Errorf("%s on %w", roundName(round, warmup, measured), err)
		}
		if round < warmup {
			continue
		}
		for _, side := range sides {
			result.Samples[side.Name] = append(result.Samples[side.Name], samples[side.Name])
		}
	}
	return nil
}

// round measures every side once, step by step.
func (r *Runner) round(ctx context.Context, s Scenario, sides []cluster.Side, round int) (map[string]Sample, error) {
	steps := 1
	if stepped, ok := s.(Stepped); ok {
		steps = stepped.Steps()
	}
	played := map[string]*playing{}
	for _, side := range sides {
		played[side.Name] = &playing{metrics: map[string]float64{}}
	}
	for step := range steps {
		for _, side := range inOrder(sides, round, step) {
			if err := settle(ctx, sides...); err != nil {
				return nil, err
			}
			if err := r.step(ctx, s, side, step, played[side.Name]); err != nil {
				return nil, fmt.Errorf("%s: %w", side.Name, err)
			}
		}
	}
	samples := map[string]Sample{}
	for name, all := range played {
		samples[name] = Sample{Metrics: all.metrics, LoadCores: all.load / all.seconds}
	}
	return samples, nil
}

// inOrder are the sides in the order of a step of a round: each time another one begins, and
// in odd rounds they come the other way round, so that no side always follows the same one.
func inOrder(sides []cluster.Side, round, step int) []cluster.Side {
	ordered := make([]cluster.Side, len(sides))
	for i := range sides {
		at := i
		if round%2 == 1 {
			at = len(sides) - 1 - i
		}
		ordered[i] = sides[(round+step+at)%len(sides)]
	}
	return ordered
}

// playing is what the steps of a round on one side have measured so far, and for how
// many seconds of CPU they kept this process busy in how many seconds.
type playing struct {
	metrics       map[string]float64
	load, seconds float64
}

// step plays one step, and measures what this process uses for that.
func (r *Runner) step(ctx context.Context, s Scenario, side cluster.Side, step int, into *playing) error {
	start := time.Now()
	before, err := measure.Self()
	if err != nil {
		return err
	}
	var sample Sample
	if stepped, ok := s.(Stepped); ok {
		sample, err = stepped.Step(ctx, r.Cluster, side, step)
	} else {
		sample, err = s.Round(ctx, r.Cluster, side)
	}
	if err != nil {
		return err
	}
	after, err := measure.Self()
	if err != nil {
		return err
	}
	into.load += after.Since(before).CPU.Seconds()
	into.seconds += time.Since(start).Seconds()
	maps.Copy(into.metrics, sample.Metrics)
	return check(s.Metrics(), sample)
}

// allSteps plays a round on one side, step after step.
func allSteps(ctx context.Context, s Stepped, c *cluster.Cluster, side cluster.Side) (Sample, error) {
	all := Sample{Metrics: map[string]float64{}}
	for step := range s.Steps() {
		one, err := s.Step(ctx, c, side, step)
		if err != nil {
			return Sample{}, err
		}
		maps.Copy(all.Metrics, one.Metrics)
	}
	return all, nil
}

func roundName(round, warmup, measured int) string {
	if round < warmup {
		return "warm-up"
	}
	return fmt.Sprintf("round %d of %d", round-warmup+1, measured)
}

// check refuses values that are not declared or no numbers.
func check(metrics []Metric, sample Sample) error {
	declared := map[string]bool{}
	for _, metric := range metrics {
		declared[metric.Name] = true
	}
	for name, value := range sample.Metrics {
		if !declared[name] {
			return fmt.Errorf("the metric %q is not declared", name)
		}
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return fmt.Errorf("the metric %q is %v", name, value)
		}
	}
	return nil
}
