// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"

	"github.com/kubeannex/annex/test/bench/report"
	"github.com/kubeannex/annex/test/bench/scenario"
)

const (
	// loadMetric counts the load generator apart from the servers. It shows whether
	// a side waits for the load generator.
	loadMetric = "load generator, busy"
	loadUnit   = "cores"
)

// selected are the scenarios to run.
func (o *Options) selected() []scenario.Scenario {
	var selected []scenario.Scenario
	for _, s := range scenario.All(scenario.Settings{Smoke: o.Smoke, Agents: o.Agents, Rounds: o.Rounds}) {
		if o.scenarios.MatchString(s.Name()) {
			selected = append(selected, s)
		}
	}
	return selected
}

func scenarioNames() string {
	return joinNames(scenario.All(scenario.Settings{}))
}

func joinNames(scenarios []scenario.Scenario) string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.Name())
	}
	return strings.Join(names, ", ")
}

// toReport puts the samples of a scenario in the form of the report.
func toReport(s scenario.Scenario, from *scenario.Result) []report.Result {
	family := s.Name()
	if titled, ok := s.(scenario.Titled); ok {
		family = titled.Title()
	}
	var results []report.Result
	for _, metric := range from.Metrics {
		result := report.Result{
			Family: family, Scenario: s.Name(), Metric: metric.Title, Unit: metric.Unit, Better: metric.Better,
			Difference: metric.Difference, Warmup: from.Warmup,
		}
		for _, side := range from.Sides {
			if values := from.Values(side, metric.Name); len(values) > 0 {
				result.Sides = append(result.Sides, report.Side{Name: side, Rounds: values})
			}
		}
		results = append(results, result)
	}
	load := report.Result{
		Family: family, Scenario: s.Name(), Metric: loadMetric, Unit: loadUnit, Better: report.Lower, Warmup: from.Warmup,
	}
	for _, side := range from.Sides {
		load.Sides = append(load.Sides, report.Side{Name: side, Rounds: from.LoadCores(side)})
	}
	return append(results, load)
}
