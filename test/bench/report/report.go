// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// MarkdownFile is the report for readers. Plots are beside it.
	MarkdownFile = "benchmarks.md"
	// ResultsFile has one line for each scenario.
	ResultsFile = "results.jsonl"
	// EnvironmentFile has the Environment.
	EnvironmentFile = "environment.json"

	folderMode = 0o755
	fileMode   = 0o644
)

// howToRead is what one has to know of all reports.
const howToRead = `
* Annex runs the code of kube-apiserver. Where nothing is selected by an index and no single object is named, a ratio
  near 1 is what is to be expected.
* Annex asks the cluster who may do what, once for each object or selector that a user names: that is in every figure
  of "Single objects" and of watches and lists by field or label on the sides ` + "`annex` and `aggregated`" + `.
* The side ` + "`aggregated`" + ` runs two API servers, so its peak memory is the sum of both.
* All servers and clients share the machine. What the clients used is shown apart, as "load generator, busy".
* Before each measurement all servers get time to become quiet. Garbage collection of a large heap takes seconds of
  CPU all the same, and falls into whichever request is measured then: look at the spread.
* A difference, such as the CPU that watches add, has no ratio where it is not above the spread of its rounds.
`

// Report is one run of the benchmark.
type Report struct {
	Environment Environment
	Results     []Result
}

// Write writes the Markdown report, the results as JSON lines, the environment and a
// plot for each family into a folder, which it makes. Results that cannot be printed
// are an error, and then nothing is written.
func (r Report) Write(dir string) error {
	var problems []error
	for _, result := range r.Results {
		problems = append(problems, result.Validate())
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	plots, err := Plots(r.Results)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, plot := range plots {
		files[plot.File] = plot.SVG
	}
	if err := r.documents(files, plots); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return fmt.Errorf("making the folder of the report: %w", err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, fileMode); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	return nil
}

func (r Report) documents(files map[string][]byte, plots []Plot) error {
	var markdown, lines bytes.Buffer
	if err := r.Markdown(&markdown, plots, ""); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	if err := JSON(&lines, r.Results); err != nil {
		return err
	}
	environment, err := json.MarshalIndent(r.Environment, "", "  ")
	if err != nil {
		return fmt.Errorf("printing the environment: %w", err)
	}
	files[MarkdownFile], files[ResultsFile] = markdown.Bytes(), lines.Bytes()
	files[EnvironmentFile] = append(environment, '\n')
	return nil
}

// families are the families of results, in the order in which they first appear.
func families(results []Result) []string {
	var names []string
	seen := map[string]bool{}
	for _, result := range results {
		if !seen[result.Family] {
			names = append(names, result.Family)
		}
		seen[result.Family] = true
	}
	return names
}

func ofFamily(results []Result, family string) []Result {
	var selected []Result
	for _, result := range results {
		if result.Family == family {
			selected = append(selected, result)
		}
	}
	return selected
}

// Markdown prints the report with links to plots, whose files are in a folder beside it:
// that of the report itself when it is empty.
func (r Report) Markdown(out io.Writer, plots []Plot, folder string) error {
	var text strings.Builder
	text.WriteString("# Benchmarks\n\n")
	text.WriteString("Cells are the median of the rounds with the lowest and the highest round. A ratio is the median of a side divided by\n" +
		"the median of `" + Baseline + "`, with the lowest and the highest ratio of two rounds that followed each other. Where some rounds\n" +
		"were better and some worse, it says \"" + string(NoDifference) + "\". In plots, bars to the right are better.\n" + howToRead)
	if r.Environment.Incomplete != "" {
		fmt.Fprintf(&text, "\n**This report is incomplete**: %s.\n", r.Environment.Incomplete)
	}
	text.WriteString("\n## Environment\n\n| | |\n| --- | --- |\n")
	for _, item := range r.Environment.items() {
		fmt.Fprintf(&text, "| %s | %s |\n", escape(item.Name), escape(item.Value))
	}
	for _, family := range families(r.Results) {
		selected := ofFamily(r.Results, family)
		fmt.Fprintf(&text, "\n## %s\n\n%s\n\n", family, roundsOf(selected))
		for _, plot := range plots {
			if plot.Family == family {
				fmt.Fprintf(&text, "![%s](%s)\n\n", family, path.Join(folder, plot.File))
			}
		}
		markdownTable(&text, rows(selected, medianAndSpread))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// roundsOf says how often the results of a family were measured.
func roundsOf(results []Result) string {
	most, warmup := 0, 0
	for _, result := range results {
		warmup = max(warmup, result.Warmup)
		for _, side := range result.Sides {
			most = max(most, len(side.Rounds))
		}
	}
	text := "Rounds: " + strconv.Itoa(most)
	if warmup == 0 {
		return text + ", none was thrown away before."
	}
	return fmt.Sprintf("%s, after %d that was thrown away.", text, warmup)
}

func markdownTable(text *strings.Builder, table [][]string) {
	for n, row := range table {
		for _, cell := range row {
			fmt.Fprintf(text, "| %s ", escape(cell))
		}
		text.WriteString("|\n")
		if n == 0 {
			text.WriteString(strings.Repeat("| --- ", len(row)) + "|\n")
		}
	}
}

// escape keeps a cell one cell.
func escape(cell string) string { return strings.ReplaceAll(cell, "|", `\|`) }
