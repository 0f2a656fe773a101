// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"strings"
)

// summaryRow is a line of the table of ratios.
type summaryRow struct {
	title, scenario string
	// suffix is the end of the name of the metric: what comes before may be a number that depends on sizes.
	suffix string
}

func summaryRows() []summaryRow {
	return []summaryRow{
		{"LIST by field, RV=0", "list-selective", "LIST by field, RV=0"},
		{"LIST by field, RV unset", "list-selective", "LIST by field, RV unset"},
		{"LIST by label, RV=0", "list-selective", "LIST by label of few, RV=0"},
		{"the same among a fifth of the objects, by field", "list-large", "by field among a fifth of the endpoints, RV=0"},
		{"full LIST, RV=0", "list-full", "full LIST, RV=0"},
		{"GET, 16 clients, p50", "crud", "GET, p50"},
		{"CREATE, 16 clients, p50", "crud", "CREATE, p50"},
		{"UPDATE, 16 clients, p50", "crud", "UPDATE, p50"},
		{"CPU that 4,000 watches, one for each node, add to 500 updates", "watch-fanout", "CPU over that without watchers"},
		{"of 4,000 agents that restart at once, synced in 20 s", "restart-all", "synced"},
		{"GET of a ConfigMap of the host meanwhile, p99", "restart-all", "p99 of GET of a ConfigMap on the host meanwhile"},
		{"core writes of the host while 16 clients flood the group, p99", "isolation", "core writes in a flood, p99"},
		{"lease renewals meanwhile, p99", "isolation", "lease renewals in a flood, p99"},
		{"live heap per 100,000 objects, from 10,000, 2 indexes", "memory", "1 version, 2 indexes, live heap per 100,000"},
		{"start of the process until it answers from its cache", "cold-start", "until the LIST of a node, RV=0"},
	}
}

// find returns the result of a row.
func (s summaryRow) find(results []Result) (Result, error) {
	for _, result := range results {
		if result.Scenario == s.scenario && strings.HasSuffix(result.Metric, s.suffix) {
			return result, nil
		}
	}
	return Result{}, fmt.Errorf("the report has no result %q of %s: run the benchmark with all scenarios", s.suffix, s.scenario)
}

// summaryTable is the table of ratios of the README.
func summaryTable(results []Result) (string, error) {
	const annex, aggregated = "annex", "aggregated"
	var text strings.Builder
	text.WriteString("| | kube-apiserver | annex | through the aggregator | annex / kube-apiserver | aggregated / kube-apiserver |\n" +
		strings.Repeat("| --- ", 6) + "|\n")
	var problems []error
	for _, row := range summaryRows() {
		result, err := row.find(results)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, name := range []string{Baseline, annex} {
			if _, found := result.Side(name); !found {
				problems = append(problems, fmt.Errorf("the report has no value of %s for %q of %s: run the benchmark again", name, row.suffix, row.scenario))
			}
		}
		cells := []string{row.title}
		for _, name := range []string{Baseline, annex, aggregated} {
			cells = append(cells, medianOf(result, name))
		}
		for _, name := range []string{annex, aggregated} {
			cells = append(cells, shortRatio(result, name))
		}
		fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | "))
	}
	return text.String(), errors.Join(problems...)
}

func medianOf(result Result, name string) string {
	side, found := result.Side(name)
	switch {
	case !found:
		return "–"
	case !result.clear(side) && side.Summary().Max > 0:
		return "below " + format(side.Summary().Max, result.Unit)
	}
	return median(result, side)
}

// shortRatio is a ratio with those of the lowest and of the highest round.
func shortRatio(result Result, name string) string {
	ratio, found := result.Ratio(name)
	switch {
	case !found:
		return "–"
	case ratio.Min == ratio.Max:
		return digits(ratio.Value)
	}
	return fmt.Sprintf("%s (%s–%s)", digits(ratio.Value), digits(ratio.Min), digits(ratio.Max))
}
