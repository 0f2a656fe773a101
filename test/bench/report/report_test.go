// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gonum.org/v1/plot"

	"github.com/kubeannex/annex/test/golden"
)

// sample has a clear win, a clear loss, an unclear result, a side that is missing and
// a scenario without a host.
func sample() []Result {
	return []Result{
		{Family: "Lists", Scenario: "list-field", Metric: "p99", Unit: Seconds, Better: Lower, Sides: []Side{
			{Name: "host", Rounds: []float64{0.120, 0.110, 0.125, 0.118, 0.130}},
			{Name: "annex", Rounds: []float64{0.0011, 0.0012, 0.0013, 0.0011, 0.0012}},
			{Name: "aggregated", Rounds: []float64{0.0031, 0.0032, 0.0033, 0.0031, 0.0090}},
		}},
		{Family: "Lists", Scenario: "list-field", Metric: "cpu", Unit: Seconds, Better: Lower, Sides: []Side{
			{Name: "host", Rounds: []float64{4.1, 4.2, 4.3, 4.2, 4.1}},
			{Name: "annex", Rounds: []float64{1.1, 1.2, 1.0, 1.1, 1.1}},
			{Name: "aggregated", Rounds: []float64{4.5, 4.6, 4.4, 4.5, 4.6}},
		}},
		{Family: "Writes", Scenario: "create", Metric: "throughput", Unit: RequestsPerSecond, Better: Higher, Warmup: 1, Sides: []Side{
			{Name: "host", Rounds: []float64{900, 1000, 1100}},
			{Name: "annex", Rounds: []float64{950, 990, 1200}},
		}},
		{Family: "Physical limit", Scenario: "limit", Metric: "memory|peak", Unit: Bytes, Better: Lower, Sides: []Side{
			{Name: "loopback", Rounds: []float64{1 << 30, 3 << 29}},
		}},
	}
}

func environment() Environment {
	return Environment{
		Date:     time.Date(2026, time.March, 2, 8, 0, 0, 0, time.UTC),
		Command:  "go run ./test/bench --scenarios 'list|create'",
		Machine:  Machine{CPU: "A CPU", Cores: 2, Memory: 24 << 30, Kernel: "6.1.0", Go: "go1.26.0 linux/amd64"},
		Versions: []Item{{"kube-apiserver", "v1.37.2"}, {"annex", "v0.1.0"}, {"etcd", "3.7.3"}},
		Sizes:    []Item{{"Endpoints", "100,000 of 1.5 KiB"}},
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := Table(&out, sample()); err != nil {
		t.Fatalf("Table: %v", err)
	}
	golden.Compare(t, "table.txt", out.String())
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := JSON(&out, sample()); err != nil {
		t.Fatalf("JSON: %v", err)
	}
	golden.Compare(t, ResultsFile, out.String())
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	report := Report{Environment: environment(), Results: sample()}
	if err := report.Write(dir); err != nil {
		t.Fatalf("Write: %v", err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("ReadDir: %v", err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	want := []string{MarkdownFile, EnvironmentFile, "lists.svg", ResultsFile, "writes.svg"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("unexpected files, -want +got:\n%s", diff)
	}
	for _, name := range []string{MarkdownFile, EnvironmentFile, ResultsFile} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatalf("ReadFile: %v", err)
		}
		golden.Compare(t, name, string(content))
	}
}

func TestWriteRefuses(t *testing.T) {
	results := sample()
	results[0].Sides[1].Rounds[2] = math.NaN()
	results[1].Better = "smaller"
	results[2].Sides[0].Rounds = nil
	results[3].Family = ""
	dir := filepath.Join(t.TempDir(), "new")
	err := Report{Results: results}.Write(dir)
	want := strings.Join([]string{
		`the result "list-field/p99" has the value NaN of annex`,
		`the result "list-field/cpu" is better when "smaller"; it must be "lower" or "higher"`,
		`the result "create/throughput" has no rounds of host`,
		`the result "limit/memory|peak" needs a family, a scenario and a metric`,
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got the error %v, want %s", err, want)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a refused report exists: %v", err)
	}
}

func TestRatio(t *testing.T) {
	side := func(better Better, host, other []float64) Result {
		return Result{Better: better, Sides: []Side{{Name: Baseline, Rounds: host}, {Name: "annex", Rounds: other}}}
	}
	difference := func(host, other []float64) Result {
		result := side(Lower, host, other)
		result.Difference = true
		return result
	}
	cases := map[string]struct {
		result Result
		side   string
		want   Ratio
		// wantNone says that there is no ratio.
		wantNone bool
	}{
		"a lower cost is better": {
			result: side(Lower, []float64{8, 10, 16}, []float64{4, 5, 4}), side: "annex",
			want: Ratio{Side: "annex", Value: 0.4, Min: 0.25, Max: 0.5, Verdict: IsBetter, Factor: 2.5, BestFactor: 4, WorstFactor: 2},
		},
		"a lower throughput is worse": {
			result: side(Higher, []float64{8, 10, 16}, []float64{4, 5, 4}), side: "annex",
			want: Ratio{Side: "annex", Value: 0.4, Min: 0.25, Max: 0.5, Verdict: IsWorse, Factor: 0.4, BestFactor: 0.5, WorstFactor: 0.25},
		},
		"one worse round makes it no difference": {
			result: side(Lower, []float64{10, 10, 10}, []float64{5, 5, 20}), side: "annex",
			want: Ratio{Side: "annex", Value: 0.5, Min: 0.5, Max: 2, Verdict: NoDifference, Factor: 2, BestFactor: 2, WorstFactor: 0.5},
		},
		"equal is no difference": {
			result: side(Higher, []float64{10}, []float64{10}), side: "annex",
			want: Ratio{Side: "annex", Value: 1, Min: 1, Max: 1, Verdict: NoDifference, Factor: 1, BestFactor: 1, WorstFactor: 1},
		},
		"rounds without a partner count for the median only": {
			result: side(Lower, []float64{10, 10}, []float64{5, 20, 20}), side: "annex",
			want: Ratio{Side: "annex", Value: 2, Min: 0.5, Max: 2, Verdict: NoDifference, Factor: 0.5, BestFactor: 2, WorstFactor: 0.5},
		},
		"a host of zero": {result: side(Lower, []float64{0, 1}, []float64{1, 1}), side: "annex", wantNone: true},
		"a side of zero": {result: side(Lower, []float64{1, 1}, []float64{0, 1}), side: "annex", wantNone: true},
		"a difference above its spread": {
			result: difference([]float64{8, 10, 12}, []float64{4, 5, 6}), side: "annex",
			want: Ratio{Side: "annex", Value: 0.5, Min: 0.5, Max: 0.5, Verdict: IsBetter, Factor: 2, BestFactor: 2, WorstFactor: 2},
		},
		"a difference within its spread":    {result: difference([]float64{8, 10, 12}, []float64{1, 5, 9}), side: "annex", wantNone: true},
		"a difference below 0":              {result: difference([]float64{8, 10, 12}, []float64{-1, -1, -1}), side: "annex", wantNone: true},
		"a host's difference in its spread": {result: difference([]float64{1, 5, 9}, []float64{8, 10, 12}), side: "annex", wantNone: true},
		"no rounds":                         {result: side(Lower, nil, []float64{1}), side: "annex", wantNone: true},
		"the host itself":                   {result: side(Lower, []float64{1}, []float64{1}), side: Baseline, wantNone: true},
		"an unknown side":                   {result: side(Lower, []float64{1}, []float64{1}), side: "aggregated", wantNone: true},
		"no host measured":                  {result: Result{Better: Lower, Sides: []Side{{Name: "annex", Rounds: []float64{1}}}}, side: "annex", wantNone: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, found := tc.result.Ratio(tc.side)
			if found == tc.wantNone {
				t.Fatalf("there is a ratio: %v, want %v", found, !tc.wantNone)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("unexpected ratio, -want +got:\n%s", diff)
			}
		})
	}
}

func TestFormat(t *testing.T) {
	cases := map[string]struct {
		value float64
		unit  string
		want  string
	}{
		"no time":            {0, Seconds, "0 s"},
		"microseconds":       {0.0000345, Seconds, "34.5 µs"},
		"milliseconds":       {0.01234, Seconds, "12.3 ms"},
		"seconds":            {1.234, Seconds, "1.23 s"},
		"many seconds":       {1234.5, Seconds, "1234 s"},
		"bytes":              {1000, Bytes, "1000 B"},
		"kibibytes":          {1536, Bytes, "1.50 KiB"},
		"mebibytes":          {98.76 * (1 << 20), Bytes, "98.8 MiB"},
		"gibibytes":          {1.5 * (1 << 30), Bytes, "1.50 GiB"},
		"a throughput":       {1234.5, RequestsPerSecond, "1234 requests/s"},
		"a time below 0":     {-0.5, Seconds, "-500 ms"},
		"a number":           {7, "", "7.00"},
		"a small number":     {0.00123, "", "0.0012"},
		"a round small one":  {0.01, "", "0.010"},
		"a difference below": {-12.34, "", "-12.3"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := format(tc.value, tc.unit); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPlots(t *testing.T) {
	first, err := Plots(sample())
	if err != nil {
		t.Fatalf("Plots: %v", err)
	}
	again, err := Plots(sample())
	if err != nil {
		t.Fatalf("Plots: %v", err)
	}
	if !cmp.Equal(first, again) {
		t.Errorf("the same results give different plots")
	}
	wantTexts := map[string][]string{
		"lists.svg": {
			"Lists", "times better than host (logarithmic)", "1/2x", "1x", "2x", "4x", "8x", "16x", "32x", "64x",
			"list-field cpu", "list-field p99", "annex", "aggregated",
		},
		"writes.svg": {"Writes", "times better than host (logarithmic)", "1/2x", "1x", "2x", "create throughput", "annex"},
	}
	gotTexts := map[string][]string{}
	for _, p := range first {
		gotTexts[p.File] = texts(t, p.SVG)
	}
	order := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	if diff := cmp.Diff(wantTexts, gotTexts, order); diff != "" {
		t.Errorf("unexpected texts, -want +got:\n%s", diff)
	}
}

// texts are the texts of an SVG in the order of drawing.
func texts(t *testing.T, svg []byte) []string {
	t.Helper()
	var found []string
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	for inText := false; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("the plot is not XML: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				found = append(found, string(token))
			}
		}
	}
}

func TestFactorTicks(t *testing.T) {
	cases := map[string]struct {
		low, high float64
		want      []string
	}{
		"around one":      {low: -1.5, high: 2.2, want: []string{"1/2x", "1x", "2x", "4x"}},
		"a wide range":    {low: -2.5, high: 10, want: []string{"1/4x", "1x", "4x", "16x", "64x", "256x", "1024x"}},
		"no space at all": {low: 0, high: 0, want: []string{"1x"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, labels(factorTicks(tc.low, tc.high))); diff != "" {
				t.Errorf("unexpected ticks, -want +got:\n%s", diff)
			}
		})
	}
}

func labels(ticks []plot.Tick) []string {
	var labels []string
	for _, tick := range ticks {
		labels = append(labels, tick.Label)
	}
	return labels
}

func TestCommandLine(t *testing.T) {
	got := CommandLine("go run ./test/bench", "--objects=2000", "--scenarios", "list|get", "", "it's")
	want := `go run ./test/bench --objects=2000 --scenarios 'list|get' '' 'it'\''s'`
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestThisMachine(t *testing.T) {
	machine, err := ThisMachine()
	if err != nil {
		t.Fatalf("ThisMachine: %v", err)
	}
	if machine.CPU == "" || machine.Cores < 1 || machine.Memory < 1<<28 || machine.Kernel == "" || !strings.HasPrefix(machine.Go, "go") {
		t.Errorf("incomplete: %+v", machine)
	}
}
