// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/report"
	"github.com/kubeannex/annex/test/bench/scenario"
)

// stub is a scenario without servers.
type stub struct {
	name  string
	round func(ctx context.Context) error
}

func (s stub) Name() string { return s.name }
func (s stub) Metrics() []scenario.Metric {
	return []scenario.Metric{{Name: "m", Title: "m", Better: scenario.Lower}}
}
func (s stub) Sides(*cluster.Cluster) []cluster.Side {
	return []cluster.Side{{Name: report.Baseline}}
}
func (s stub) Prepare(context.Context, *cluster.Cluster) error { return nil }
func (s stub) Close(context.Context) error                     { return nil }
func (s stub) Round(ctx context.Context, _ *cluster.Cluster, _ cluster.Side) (scenario.Sample, error) {
	return scenario.Sample{Metrics: map[string]float64{"m": 1}}, s.round(ctx)
}

func measured(context.Context) error { return nil }

func TestReportOfAnEndedRun(t *testing.T) {
	broken := errors.New("a server is broken")
	for name, tc := range map[string]struct {
		// start and second are what the set-up and the second scenario do; interrupt is what a signal does.
		start, second  func(ctx context.Context, interrupt context.CancelFunc) error
		wantError      error
		wantScenarios  []string
		wantIncomplete string
		wantNoReport   bool
	}{
		"all is measured": {
			wantScenarios: []string{"first", "second"},
		},
		"interrupted while servers start": {
			start: func(ctx context.Context, interrupt context.CancelFunc) error {
				interrupt()
				<-ctx.Done()
				return ctx.Err()
			},
			wantError:      context.Canceled,
			wantIncomplete: "it was interrupted, and has nothing of first, second",
		},
		"interrupted in a scenario": {
			second: func(ctx context.Context, interrupt context.CancelFunc) error {
				interrupt()
				<-ctx.Done()
				return ctx.Err()
			},
			wantError:      context.Canceled,
			wantScenarios:  []string{"first"},
			wantIncomplete: "it was interrupted, and has nothing of second",
		},
		"a scenario fails": {
			second:         func(context.Context, context.CancelFunc) error { return broken },
			wantError:      broken,
			wantScenarios:  []string{"first"},
			wantIncomplete: "it failed, and has nothing of second",
		},
		"servers do not start": {
			start:        func(context.Context, context.CancelFunc) error { return broken },
			wantError:    broken,
			wantNoReport: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			output := filepath.Join(t.TempDir(), "report")
			options, err := Parse([]string{"--rounds=1", "--output=" + output}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			call := func(do func(context.Context, context.CancelFunc) error) func(context.Context) error {
				if do == nil {
					return measured
				}
				return func(ctx context.Context) error { return do(ctx, interrupt) }
			}
			r := &run{
				Options: options, out: io.Discard, progress: io.Discard, start: call(tc.start),
				versions: func(context.Context) ([]report.Item, error) { return nil, nil },
			}
			err = r.play(ctx, []scenario.Scenario{stub{"first", measured}, stub{"second", call(tc.second)}})
			if !errors.Is(err, tc.wantError) || (err == nil) != (tc.wantError == nil) {
				t.Errorf("the error is %v, wanted is %v", err, tc.wantError)
			}
			checkReport(t, output, tc.wantNoReport, tc.wantIncomplete, tc.wantScenarios)
		})
	}
}

func checkReport(t *testing.T, output string, wantNone bool, wantIncomplete string, wantScenarios []string) {
	t.Helper()
	got, err := report.Read(output)
	if wantNone {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("reading the report gives the error %v, wanted is none to be there", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var scenarios []string
	for _, line := range report.Lines(got.Results) {
		scenarios = append(scenarios, line.Scenario)
	}
	if diff := cmp.Diff(wantScenarios, scenarios); diff != "" {
		t.Errorf("scenarios differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantIncomplete, got.Environment.Incomplete); diff != "" {
		t.Errorf("what is said to be missing differs (-want +got):\n%s", diff)
	}
	page, err := os.ReadFile(filepath.Join(output, report.MarkdownFile))
	if err != nil {
		t.Fatal(err)
	}
	if says := strings.Contains(string(page), "**This report is incomplete**"); says != (wantIncomplete != "") {
		t.Errorf("the page says that it is incomplete: %t", says)
	}
}
