// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"math"

	"github.com/kubeannex/annex/test/bench/measure"
)

// Baseline is the side that the others are compared to.
const Baseline = "host"

// Units that are printed with a prefix for their size. Any other text is printed
// as it is behind the number.
const (
	// Seconds are for durations and for CPU time.
	Seconds = "s"
	// Bytes are for memory and bodies.
	Bytes = "B"
	// RequestsPerSecond and ObjectsPerSecond are throughputs.
	RequestsPerSecond = "requests/s"
	ObjectsPerSecond  = "objects/s"
)

// Better says which values of a metric are wanted.
type Better string

const (
	// Lower is for costs.
	Lower Better = "lower"
	// Higher is for throughputs.
	Higher Better = "higher"
)

// Side is what one side measured.
type Side struct {
	// Name is Baseline or the name of what is compared to it.
	Name string
	// Rounds are the values of the measured rounds, in the order of the rounds.
	Rounds []float64
}

// Result is one metric of one scenario.
type Result struct {
	// Family is the heading and the plot that the scenario belongs to.
	Family string
	// Scenario and Metric name the result. Results of a scenario follow each other.
	Scenario, Metric string
	Unit             string
	Better           Better
	// Difference says that values are what is left of larger ones: they may be below 0, and have no
	// ratio where their median is not above their spread, the distance of the quartiles.
	Difference bool
	// Warmup is how many rounds before those of the sides were thrown away.
	Warmup int
	// Sides are in the order of the columns.
	Sides []Side
}

// Verdict says what a ratio means.
type Verdict string

// The verdict is NoDifference if some rounds were better and some worse.
const (
	IsBetter     Verdict = "better"
	IsWorse      Verdict = "worse"
	NoDifference Verdict = "no difference"
)

// Ratio compares a side to the host.
type Ratio struct {
	// Side is what is compared.
	Side string
	// Value is the median of the side divided by the median of the host.
	Value float64
	// Min and Max are the ratios of the best and the worst round: the n-th round of a
	// side is compared to the n-th of the host, which was shortly before or after.
	Min, Max float64
	Verdict  Verdict
	// Factor is how many times better the median of the side is. It is above 1 for the
	// better side, whichever values are wanted; BestFactor and WorstFactor are of rounds.
	Factor, BestFactor, WorstFactor float64
}

// Side returns a side by its name.
func (r Result) Side(name string) (Side, bool) {
	for _, side := range r.Sides {
		if side.Name == name {
			return side, true
		}
	}
	return Side{}, false
}

// Summary sums up the rounds.
func (s Side) Summary() measure.Summary { return measure.Summarize(s.Rounds) }

// clear says that the values of a side are more than what their spread may be.
func (r Result) clear(side Side) bool {
	summary := side.Summary()
	return !r.Difference || summary.Median > summary.IQR()
}

// Ratio compares a side to the host. It is false if either is missing or has
// rounds that are not above 0, or is a difference that is not clear, and for the host itself.
func (r Result) Ratio(name string) (Ratio, bool) {
	side, found := r.Side(name)
	host, measured := r.Side(Baseline)
	if name == Baseline || !found || !measured || !positive(side.Rounds) || !positive(host.Rounds) {
		return Ratio{}, false
	}
	if !r.clear(side) || !r.clear(host) {
		return Ratio{}, false
	}
	value := side.Summary().Median / host.Summary().Median
	ratio := Ratio{Side: name, Value: value, Min: value, Max: value}
	for n := range min(len(side.Rounds), len(host.Rounds)) {
		round := side.Rounds[n] / host.Rounds[n]
		ratio.Min, ratio.Max = min(ratio.Min, round), max(ratio.Max, round)
	}
	return ratio.judged(r.Better), true
}

// judged fills in what depends on which values are wanted.
func (r Ratio) judged(better Better) Ratio {
	if better == Higher {
		r.Factor, r.BestFactor, r.WorstFactor = r.Value, r.Max, r.Min
	} else {
		r.Factor, r.BestFactor, r.WorstFactor = 1/r.Value, 1/r.Min, 1/r.Max
	}
	switch {
	case r.WorstFactor > 1:
		r.Verdict = IsBetter
	case r.BestFactor < 1:
		r.Verdict = IsWorse
	default:
		r.Verdict = NoDifference
	}
	return r
}

func positive(rounds []float64) bool {
	for _, value := range rounds {
		if value <= 0 {
			return false
		}
	}
	return len(rounds) > 0
}

// Validate returns everything that cannot be printed of a result.
func (r Result) Validate() error {
	var problems []error
	name := r.Scenario + "/" + r.Metric
	if r.Family == "" || r.Scenario == "" || r.Metric == "" {
		problems = append(problems, fmt.Errorf("the result %q needs a family, a scenario and a metric", name))
	}
	if r.Better != Lower && r.Better != Higher {
		problems = append(problems, fmt.Errorf("the result %q is better when %q; it must be %q or %q", name, r.Better, Lower, Higher))
	}
	for _, side := range r.Sides {
		if len(side.Rounds) == 0 {
			problems = append(problems, fmt.Errorf("the result %q has no rounds of %s", name, side.Name))
		}
		for _, value := range side.Rounds {
			if math.IsNaN(value) || math.IsInf(value, 0) {
				problems = append(problems, fmt.Errorf("the result %q has the value %v of %s", name, value, side.Name))
			}
		}
	}
	return errors.Join(problems...)
}
