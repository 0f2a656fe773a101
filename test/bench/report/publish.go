// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	// docsFolder has the published report, and plotsFolder in it its plots.
	docsFolder, plotsFolder = "docs", "benchmarks"
	// readmeFile has the table of ratios below readmeHeading.
	readmeFile, readmeHeading = "README.md", "\n## Beside kube-apiserver\n"
	// readmeTable is how the first line of the table begins.
	readmeTable = "\n| | kube-apiserver |"
	// longestLine bounds a line of ResultsFile.
	longestLine = 16 << 20
)

// Read reads the report that Write has written into a folder.
func Read(dir string) (Report, error) {
	var report Report
	content, err := os.ReadFile(filepath.Join(dir, EnvironmentFile))
	if err != nil {
		return report, fmt.Errorf("reading a report: %w", err)
	}
	if err := json.Unmarshal(content, &report.Environment); err != nil {
		return report, fmt.Errorf("reading %s: %w", EnvironmentFile, err)
	}
	if content, err = os.ReadFile(filepath.Join(dir, ResultsFile)); err != nil {
		return report, fmt.Errorf("reading a report: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var line Line
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return report, fmt.Errorf("reading %s: %w", ResultsFile, err)
		}
		report.Results = append(report.Results, line.results()...)
	}
	return report, lines.Err()
}

// results are those that the line was made of.
func (l Line) results() []Result {
	var results []Result
	for _, metric := range l.Metrics {
		result := Result{
			Family: l.Family, Scenario: l.Scenario, Metric: metric.Metric, Unit: metric.Unit, Better: metric.Better,
			Difference: metric.Difference, Warmup: l.Warmup,
		}
		for _, side := range metric.Sides {
			result.Sides = append(result.Sides, Side{Name: side.Side, Rounds: side.Rounds})
		}
		results = append(results, result)
	}
	return results
}

// Publish writes the report into the documentation of the repository: its page and plots
// in docs, and the table of ratios of the README. One that is incomplete, of a run with
// other options than the default ones, or without a value of the host and of annex for each line of
// that table is an error, and then nothing is changed.
func (r Report) Publish(root string) error {
	if r.Environment.Incomplete != "" {
		return fmt.Errorf("the report is not published, it is incomplete (%s): run the benchmark again", r.Environment.Incomplete)
	}
	if r.Environment.Options != "" {
		return fmt.Errorf("the report is not published, it is of a run with other options than the default ones (%s): run the benchmark without them",
			r.Environment.Options)
	}
	readme := filepath.Join(root, readmeFile)
	before, err := os.ReadFile(readme)
	if err != nil {
		return fmt.Errorf("publishing the report: %w", err)
	}
	table, err := summaryTable(r.Results)
	if err != nil {
		return err
	}
	after, err := replaceTable(string(before), table)
	if err != nil {
		return err
	}
	plots, err := Plots(r.Results)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := r.Markdown(&page, plots, plotsFolder); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	folder := filepath.Join(root, docsFolder, plotsFolder)
	if err := replacePlots(folder, plots); err != nil {
		return fmt.Errorf("publishing plots: %w", err)
	}
	for name, content := range map[string][]byte{
		filepath.Join(root, docsFolder, MarkdownFile): page.Bytes(), readme: []byte(after),
	} {
		if err := os.WriteFile(name, content, fileMode); err != nil {
			return fmt.Errorf("publishing the report: %w", err)
		}
	}
	return nil
}

// replacePlots leaves nothing but these plots in a folder.
func replacePlots(folder string, plots []Plot) error {
	old, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return err
	}
	for _, plot := range plots {
		if err := os.WriteFile(filepath.Join(folder, plot.File), plot.SVG, fileMode); err != nil {
			return err
		}
	}
	return nil
}

// replaceTable replaces the table of ratios and leaves what is around it.
func replaceTable(readme, table string) (string, error) {
	errNoTable := fmt.Errorf("%s has no table that begins with %q below %q", readmeFile, strings.TrimSpace(readmeTable), strings.TrimSpace(readmeHeading))
	heading := strings.Index(readme, readmeHeading)
	if heading < 0 {
		return "", errNoTable
	}
	head, section := readme[:heading+len(readmeHeading)], readme[heading+len(readmeHeading):]
	prose, rest, found := strings.Cut(section, readmeTable)
	if !found || strings.Contains(prose, "\n## ") {
		return "", errNoTable
	}
	_, rest, found = strings.Cut(rest, "\n\n")
	if !found {
		return "", errors.New("the table of ratios of " + readmeFile + " does not end")
	}
	return head + prose + "\n" + table + "\n" + rest, nil
}
