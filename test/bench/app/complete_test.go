// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeannex/annex/test/bench/report"
	"github.com/kubeannex/annex/test/bench/scenario"
)

// whole are results of all scenarios, with all rounds.
func whole() []report.Result {
	var results []report.Result
	for _, s := range scenario.All(scenario.Settings{Rounds: minRounds}) {
		measured, warmup := scenario.RoundsOf(s, minRounds)
		from := &scenario.Result{
			Scenario: s.Name(), Metrics: s.Metrics(), Sides: []string{"host", "annex"}, Samples: map[string][]scenario.Sample{}, Warmup: warmup,
		}
		for _, side := range from.Sides {
			for range measured {
				sample := scenario.Sample{Metrics: map[string]float64{}, LoadCores: 1}
				for _, metric := range from.Metrics {
					sample.Metrics[metric.Name] = 1
				}
				from.Samples[side] = append(from.Samples[side], sample)
			}
		}
		results = append(results, toReport(s, from)...)
	}
	return results
}

func without(name string) []report.Result {
	var results []report.Result
	for _, result := range whole() {
		if result.Scenario != name {
			results = append(results, result)
		}
	}
	return results
}

// TestWholeReportIsPublished also says that all lines of the table of README are results of scenarios.
func TestWholeReportIsPublished(t *testing.T) {
	root := t.TempDir()
	readme := "# Annex\n\n## Beside kube-apiserver\n\n| | kube-apiserver | old |\n\nThe end.\n"
	if err := os.WriteFile(filepath.Join(root, "README.md"), []byte(readme), 0o600); err != nil {
		t.Fatal(err)
	}
	results := whole()
	if err := checkComplete(results); err != nil {
		t.Error(err)
	}
	if err := (report.Report{Results: results}).Publish(root); err != nil {
		t.Error(err)
	}
}

func TestCheckComplete(t *testing.T) {
	short := whole()
	for n, result := range short {
		if result.Scenario == "crud" {
			short[n].Sides[1].Rounds = result.Sides[1].Rounds[1:]
		}
	}
	for name, tc := range map[string]struct {
		results []report.Result
		want    string
	}{
		"a scenario is missing": {results: without("isolation"), want: "the report has nothing of isolation"},
		"a round is missing":    {results: short, want: "the report has 4 rounds of crud, wanted are 5"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkComplete(tc.results); err == nil || err.Error() != tc.want {
				t.Errorf("the error is %v, wanted is %q", err, tc.want)
			}
		})
	}
}

// TestFolder demands that no report replaces one with more in it.
func TestFolder(t *testing.T) {
	for name, tc := range map[string]struct {
		// last is the report that is there. Nil means none.
		last, now  []report.Result
		incomplete string
		want       string
	}{
		"none is there":                     {want: "report"},
		"as much is there":                  {last: whole(), now: whole(), want: "report"},
		"a part of it is there":             {last: without("crud"), now: whole(), want: "report"},
		"another scenario is there":         {last: whole(), now: without("crud"), want: "report-partial"},
		"interrupted before anything":       {last: whole(), want: "report-partial"},
		"an interrupted one is there":       {last: whole(), incomplete: "it failed", want: "report"},
		"one of a scenario replaces itself": {last: without("crud")[:1], now: without("crud")[:1], want: "report"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			options, err := Parse([]string{"--output=" + filepath.Join(root, "report")}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if tc.last != nil {
				there := report.Report{Environment: report.Environment{Incomplete: tc.incomplete}, Results: tc.last}
				if err := there.Write(options.Output); err != nil {
					t.Fatal(err)
				}
			}
			got := (&run{Options: options}).folder(report.Report{Results: tc.now})
			if diff := cmp.Diff(filepath.Join(root, tc.want), got); diff != "" {
				t.Errorf("the folder differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	for name, tc := range map[string]struct{ args, want string }{
		"none":                  {},
		"another folder":        {args: "--output=out --keep --timeout=2h --profile"},
		"more rounds":           {args: "--rounds=7"},
		"the default":           {args: "--objects=100000"},
		"fewer rounds":          {args: "--rounds=4", want: "--rounds=4"},
		"less data":             {args: "--objects=7 --seed=2", want: "--objects=7 --seed=2"},
		"some of the scenarios": {args: "--scenarios=crud", want: "--scenarios=crud"},
		"a smoke run":           {args: "--smoke", want: "--smoke=true"},
	} {
		t.Run(name, func(t *testing.T) {
			options, err := Parse(strings.Fields(tc.args), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, options.changes()); diff != "" {
				t.Errorf("changes differ (-want +got):\n%s", diff)
			}
		})
	}
}
