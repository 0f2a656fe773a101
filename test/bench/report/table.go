// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table prints the medians of all sides and their ratios to the host: the ratio of
// the medians, those of the lowest and the highest round, and what that means.
func Table(out io.Writer, results []Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows(results, median) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// sideNames are the sides of all results, in the order in which they first appear.
func sideNames(results []Result) []string {
	var names []string
	for _, result := range results {
		for _, side := range result.Sides {
			if !slices.Contains(names, side.Name) {
				names = append(names, side.Name)
			}
		}
	}
	return names
}

// comparedNames are the sides that have a ratio in one of the results.
func comparedNames(results []Result) []string {
	return slices.DeleteFunc(sideNames(results), func(name string) bool {
		return !slices.ContainsFunc(results, func(r Result) bool {
			_, compared := r.Ratio(name)
			return compared
		})
	})
}

// rows are the titles and the cells of a table. What is missing is a dash.
func rows(results []Result, cell func(Result, Side) string) [][]string {
	const nothing = "-"
	sides, compared := sideNames(results), comparedNames(results)
	titles := append([]string{"scenario", "metric"}, sides...)
	for _, name := range compared {
		titles = append(titles, name+"/"+Baseline)
	}
	table := [][]string{titles}
	for _, result := range results {
		row := []string{result.Scenario, result.Metric}
		for _, name := range sides {
			if side, found := result.Side(name); found {
				row = append(row, cell(result, side))
			} else {
				row = append(row, nothing)
			}
		}
		for _, name := range compared {
			if ratio, found := result.Ratio(name); found {
				row = append(row, ratio.String())
			} else {
				row = append(row, nothing)
			}
		}
		table = append(table, row)
	}
	return table
}

func median(result Result, side Side) string { return format(side.Summary().Median, result.Unit) }

func medianAndSpread(result Result, side Side) string {
	summary := side.Summary()
	return fmt.Sprintf("%s (%s to %s)", format(summary.Median, result.Unit), format(summary.Min, result.Unit), format(summary.Max, result.Unit))
}

// Line is a scenario in JSON.
type Line struct {
	Scenario string `json:"scenario"`
	Family   string `json:"family"`
	// Warmup is how many rounds were thrown away before those that are measured.
	Warmup  int          `json:"warmup"`
	Metrics []LineMetric `json:"metrics"`
}

// LineMetric is a metric in JSON.
type LineMetric struct {
	Metric string `json:"metric"`
	Unit   string `json:"unit"`
	Better Better `json:"better"`
	// Difference says that values may be below 0, see Result.
	Difference bool       `json:"difference,omitempty"`
	Sides      []LineSide `json:"sides"`
}

// LineSide is a side in JSON, in the unit of its metric.
type LineSide struct {
	Side   string     `json:"side"`
	Median float64    `json:"median"`
	Min    float64    `json:"min"`
	Max    float64    `json:"max"`
	IQR    float64    `json:"iqr"`
	Ratio  *LineRatio `json:"ratio,omitempty"`
	Rounds []float64  `json:"rounds"`
}

// LineRatio is a ratio to the host in JSON.
type LineRatio struct {
	Value   float64 `json:"value"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Verdict Verdict `json:"verdict"`
}

// JSON prints one line for each scenario.
func JSON(out io.Writer, results []Result) error {
	encoder := json.NewEncoder(out)
	for _, line := range Lines(results) {
		if err := encoder.Encode(line); err != nil {
			return fmt.Errorf("printing the scenario %s: %w", line.Scenario, err)
		}
	}
	return nil
}

// Lines gathers the results of each scenario.
func Lines(results []Result) []Line {
	var lines []Line
	for _, result := range results {
		if len(lines) == 0 || lines[len(lines)-1].Scenario != result.Scenario {
			lines = append(lines, Line{Scenario: result.Scenario, Family: result.Family, Warmup: result.Warmup})
		}
		last := &lines[len(lines)-1]
		last.Metrics = append(last.Metrics, lineMetric(result))
	}
	return lines
}

func lineMetric(result Result) LineMetric {
	metric := LineMetric{Metric: result.Metric, Unit: result.Unit, Better: result.Better, Difference: result.Difference}
	for _, side := range result.Sides {
		summary := side.Summary()
		line := LineSide{
			Side: side.Name, Median: summary.Median, Min: summary.Min, Max: summary.Max, IQR: summary.IQR(), Rounds: side.Rounds,
		}
		if ratio, found := result.Ratio(side.Name); found {
			line.Ratio = &LineRatio{Value: ratio.Value, Min: ratio.Min, Max: ratio.Max, Verdict: ratio.Verdict}
		}
		metric.Sides = append(metric.Sides, line)
	}
	return metric
}
