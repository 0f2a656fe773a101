// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
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
	// side of every scenario that is not Sided, made in further rounds that are not
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

// Run prepares a scenario, measures every side in every round, each round in
// another order, and closes the scenario.
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
	for _, side := range sides {
		result.Sides = append(result.Sides, side.Name)
	}
	if err := r.rounds(ctx, s, sides, result); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	if r.Profiles != "" {
		if err := r.profile(ctx, s, sides); err != nil {
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

// rounds measures every side in every round and adds what was measured to the result.
func (r *Runner) rounds(ctx context.Context, s Scenario, sides []cluster.Side, result *Result) error {
	measured, warmup := r.Rounds, 1
	if paced, ok := s.(Paced); ok {
		measured, warmup = paced.Rounds(r.Rounds)
	}
	for round := range warmup + measured {
		r.Progress("%s: %s", s.Name(), roundName(round, warmup, measured))
		for i := range sides {
			side := sides[(round+i)%len(sides)]
			sample, err := r.round(ctx, s, side)
			if err != nil {
				return fmt.Errorf("%s on %s: %w", roundName(round, warmup, measured), side.Name, err)
			}
			if round >= warmup {
				result.Samples[side.Name] = append(result.Samples[side.Name], sample)
			}
		}
	}
	return nil
}

// round measures one side once, and what this process used for that.
func (r *Runner) round(ctx context.Context, s Scenario, side cluster.Side) (Sample, error) {
	start := time.Now()
	before, err := measure.Self()
	if err != nil {
		return Sample{}, err
	}
	sample, err := s.Round(ctx, r.Cluster, side)
	if err != nil {
		return Sample{}, err
	}
	after, err := measure.Self()
	if err != nil {
		return Sample{}, err
	}
	sample.LoadCores = after.Since(before).CPU.Seconds() / time.Since(start).Seconds()
	return sample, check(s.Metrics(), sample)
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
