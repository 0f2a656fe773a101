// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario holds what the benchmark measures, one file a scenario, and
// the runner that measures the sides in turn.
package scenario

import (
	"context"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/report"
)

// Direction says which values of a metric are better.
type Direction = report.Better

const (
	// Lower values are better.
	Lower = report.Lower
	// Higher values are better.
	Higher = report.Higher
)

// Metric describes one number that a scenario measures.
type Metric struct {
	// Name is unique in the scenario and the key in Sample.Metrics, for example "field.rv0.time".
	Name string
	// Title is what tables show, for example "LIST by field, RV=0".
	Title string
	// Unit is the unit of every value, one of the constants of report where one fits.
	Unit string
	// Better says which values are better.
	Better Direction
	// Difference says that values are what is left of larger ones: they may be below 0, and are compared
	// only where they are clearly above their spread.
	Difference bool
}

// Sample is what one round on one side measured.
type Sample struct {
	// Metrics are values by the names of the scenario's metrics. A metric that has
	// no meaning on a side may be missing there, on that side always.
	Metrics map[string]float64
	// LoadCores is how many cores the load generator, this process, kept busy. The runner sets it.
	LoadCores float64
}

// Scenario measures one aspect. Its methods are called one after another: Prepare,
// then a Round for every side and round, then Close, also after an error. What a
// scenario creates it removes in Close: the next one finds the cluster as filled.
type Scenario interface {
	// Name is short and unique; --scenarios selects by it.
	Name() string
	// Metrics declares what Round returns, in the order of the table.
	Metrics() []Metric
	// Prepare does what is not measured. It ends with caches that are warm.
	Prepare(ctx context.Context, c *cluster.Cluster) error
	// Round measures one side once. A wrong answer of a server is an error.
	Round(ctx context.Context, c *cluster.Cluster, side cluster.Side) (Sample, error)
	// Close removes what Prepare and Round have made.
	Close(ctx context.Context) error
}

// Sided is implemented by scenarios whose sides are not the three of the cluster.
type Sided interface {
	// Sides are the sides to measure, after Prepare. The first is what ratios are to.
	Sides(c *cluster.Cluster) []cluster.Side
}

// Titled is implemented by scenarios that are not called by their name in a report.
type Titled interface {
	// Title is the heading of the scenario. Scenarios with the same one share a plot.
	Title() string
}

// Paced is implemented by scenarios that cannot be measured as often as asked for,
// for example because a round needs a new cluster.
type Paced interface {
	// Rounds returns how many rounds are measured, and how many before that are thrown away.
	Rounds(asked int) (measured, warmup int)
}

// Stepped is implemented by scenarios of which a round has several steps: every side
// plays a step before any of them plays the next. So what is compared is measured
// within seconds, and a garbage collection that takes longer falls into the steps of all.
type Stepped interface {
	// Steps is how many steps a round has.
	Steps() int
	// Step plays one of them on a side, in their order from 0 on. The samples of all
	// together are that of the round.
	Step(ctx context.Context, c *cluster.Cluster, side cluster.Side, step int) (Sample, error)
}

// Restarting is implemented by scenarios that end servers of the main cluster and start them
// again. They cannot be profiled: a server that ends gives no profile.
type Restarting interface {
	Restarts()
}

// Independent is implemented by scenarios that start clusters of their own. The main
// one is stopped before the first of them: the machine may not have the memory for
// all. They get it for its Env and Sizes only.
type Independent interface {
	Independent()
}
