// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// full is a report with every line of the table of the README.
func full() Report {
	var results []Result
	for _, row := range summaryRows() {
		results = append(results, Result{
			Family: "All", Scenario: row.scenario, Metric: row.suffix, Unit: Seconds, Better: Lower, Sides: []Side{
				{Name: "host", Rounds: []float64{1, 2, 3}}, {Name: "annex", Rounds: []float64{0.1, 0.2, 0.6}},
			},
		})
	}
	return Report{Environment: environment(), Results: results}
}

const readmeBefore = "# Annex\n\n## Beside kube-apiserver\n\nThe prose before.\n\n| | kube-apiserver | old |\n|---|---|---|\n| a | 1 | 2 |\n\nThe prose after.\n\n## Next\n"

// checkout is a folder with what Publish changes.
func checkout(t *testing.T, readme string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "docs", "benchmarks"), folderMode); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"README.md": readme, "docs/benchmarks/old.svg": "<svg/>", "docs/benchmarks.md": "old"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), fileMode); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestReadGivesWhatWasWritten(t *testing.T) {
	dir := t.TempDir()
	want := Report{Environment: environment(), Results: sample()}
	want.Environment.Incomplete, want.Environment.Options = "it was interrupted", "--rounds=1"
	want.Results[0].Difference = true
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the report differs (-want +got):\n%s", diff)
	}
}

func TestPublish(t *testing.T) {
	root := checkout(t, readmeBefore)
	if err := full().Publish(root); err != nil {
		t.Fatal(err)
	}
	readme := read(t, filepath.Join(root, "README.md"))
	before, rest, _ := strings.Cut(readme, "| | kube-apiserver | annex |")
	table, after, _ := strings.Cut(rest, "\n\n")
	if diff := cmp.Diff([]string{"# Annex\n\n## Beside kube-apiserver\n\nThe prose before.\n\n", "The prose after.\n\n## Next\n"}, []string{before, after}); diff != "" {
		t.Errorf("what is around the table differs (-want +got):\n%s", diff)
	}
	if want := "\n| LIST by field, RV=0 | 2.00 s | 200 ms | – | 0.10 (0.10–0.20) | – |\n"; !strings.Contains(table, want) {
		t.Errorf("the table is\n%s\nwanted is the line%s", table, want)
	}
	if page := read(t, filepath.Join(root, "docs", "benchmarks.md")); !strings.Contains(page, "(benchmarks/all.svg)") {
		t.Errorf("the page does not show its plot:\n%s", page)
	}
	entries, err := os.ReadDir(filepath.Join(root, "docs", "benchmarks"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "all.svg" {
		t.Errorf("the plots are %v, %v, wanted is all.svg alone", entries, err)
	}
}

func TestSummaryOfADifference(t *testing.T) {
	result := Result{Unit: Seconds, Better: Lower, Difference: true, Sides: []Side{
		{Name: "host", Rounds: []float64{4, 5, 6}}, {Name: "annex", Rounds: []float64{-0.1, 0.01, 0.2}}, {Name: "aggregated", Rounds: []float64{-0.3, -0.2, -0.1}},
	}}
	want := []string{"5.00 s", "below 200 ms", "-200 ms", "–"}
	got := []string{medianOf(result, "host"), medianOf(result, "annex"), medianOf(result, "aggregated"), shortRatio(result, "annex")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cells differ (-want +got):\n%s", diff)
	}
}

func TestPublishRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Report)
		readme string
		want   string
	}{
		"an incomplete report": {
			change: func(r *Report) { r.Environment.Incomplete = "it was interrupted" },
			want:   "it is incomplete (it was interrupted)",
		},
		"a report of less data": {
			change: func(r *Report) { r.Environment.Options = "--objects=7" },
			want:   "other options than the default ones (--objects=7)",
		},
		"a report without the host": {
			change: func(r *Report) { r.Results[1].Sides = r.Results[1].Sides[1:] },
			want:   `no value of host for "LIST by field, RV unset" of list-selective`,
		},
		"a report without annex": {
			change: func(r *Report) { r.Results[1].Sides = r.Results[1].Sides[:1] },
			want:   `no value of annex for "LIST by field, RV unset" of list-selective`,
		},
		"a report without a scenario": {
			change: func(r *Report) { r.Results = r.Results[1:] },
			want:   `no result "LIST by field, RV=0" of list-selective`,
		},
		"a README without the heading": {readme: "# Annex\n", want: "README.md has no table"},
		"a README whose table is elsewhere": {
			readme: "# Annex\n\n## Beside kube-apiserver\n\n## Next\n\n| | kube-apiserver | a |\n\n", want: "README.md has no table",
		},
	} {
		t.Run(name, func(t *testing.T) {
			report, readme := full(), readmeBefore
			if tc.change != nil {
				tc.change(&report)
			}
			if tc.readme != "" {
				readme = tc.readme
			}
			root := checkout(t, readme)
			if err := report.Publish(root); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, wanted is %q", err, tc.want)
			}
			if diff := cmp.Diff([]string{readme, "old"}, []string{read(t, filepath.Join(root, "README.md")), read(t, filepath.Join(root, "docs", "benchmarks.md"))}); diff != "" {
				t.Errorf("files were changed (-want +got):\n%s", diff)
			}
		})
	}
}
