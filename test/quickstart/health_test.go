// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// The columns of a table of checks.
const (
	alive = "alive"
	ready = "ready"
)

// metricsTimeout bounds the question for metrics.
const metricsTimeout = 10 * time.Second

// checkRow is a line of a table of checks. Its name may end with a star.
type checkRow struct {
	name string
	// always says in which columns the check is there in the cluster of this
	// test, sometimes in which it may be.
	always, sometimes []string
}

// checkRows reads the table below a heading of the third level.
func checkRows(page, heading string) []checkRow {
	_, body, _ := strings.Cut(page, "\n### "+heading+"\n")
	var rows []checkRow
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| `") || len(cells) != 4 {
			continue
		}
		row := checkRow{name: strings.Trim(strings.TrimSpace(cells[0]), "`")}
		for i, endpoint := range []string{alive, ready} {
			switch strings.TrimSpace(cells[i+1]) {
			case "yes":
				row.always = append(row.always, endpoint)
			case "some":
				row.sometimes = append(row.sometimes, endpoint)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// differences compares the checks of an endpoint with a column of the page.
func differences(column string, live []string, rows []checkRow) []string {
	var found []string
	for _, name := range live {
		if !slices.ContainsFunc(rows, func(row checkRow) bool {
			prefix, open := strings.CutSuffix(row.name, "*")
			named := row.name == name || open && strings.HasPrefix(name, prefix)
			return named && (slices.Contains(row.always, column) || slices.Contains(row.sometimes, column))
		}) {
			found = append(found, "not on the page: "+name)
		}
	}
	for _, row := range rows {
		prefix, open := strings.CutSuffix(row.name, "*")
		if slices.Contains(row.always, column) && !slices.ContainsFunc(live, func(name string) bool { return name == row.name || open && strings.HasPrefix(name, prefix) }) {
			found = append(found, "only on the page: "+row.name)
		}
	}
	return found
}

// liveChecks asks a server which checks an endpoint has.
func liveChecks(ctx context.Context, config *rest.Config, endpoint string) ([]string, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/"+endpoint+"?verbose", nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/%s answers %s: %s", endpoint, answer.Status, body)
	}
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^\[[+-]\](\S+) `).FindAllStringSubmatch(string(body), -1) {
		names = append(names, match[1])
	}
	return names, nil
}

// healthChecks compares what both servers check with the operations page.
func (r *runbook) healthChecks(ctx context.Context, t *testing.T, page string) {
	t.Helper()
	annex, err := r.annex.AdminConfig(0)
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`--health-probe-bind-address=(\S+)`).FindStringSubmatch(r.controller.Log())
	if address == nil {
		t.Fatal("the log of the controller does not show where its health is asked for")
	}
	for heading, server := range map[string]*rest.Config{
		"Checks of annex-apiserver":  annex,
		"Checks of annex-controller": {Host: "http://" + address[1]},
	} {
		rows := checkRows(page, heading)
		for column, endpoint := range map[string]string{alive: "livez", ready: "readyz"} {
			live, err := liveChecks(ctx, server, endpoint)
			if err != nil {
				t.Errorf("%s: %v", heading, err)
				continue
			}
			for _, difference := range differences(column, live, rows) {
				t.Errorf("%s, /%s: %s", heading, endpoint, difference)
			}
		}
	}
}

// controllerMetrics looks for what the moves of the runbook have left.
func (r *runbook) controllerMetrics(ctx context.Context, t *testing.T) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.metrics+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: metricsTimeout}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`annex_annexedgroup_move_duration_seconds_count{move="adoption"} [1-9]`,
		`annex_annexedgroup_move_duration_seconds_count{move="release"} [1-9]`,
		`annex_annexedgroup_fence_duration_seconds_count{group="argoproj.io"} [2-9]`,
		`annex_annexedgroup_copied_objects_total{group="argoproj.io",resource="workflows",to="annex"} [2-9]`,
		`annex_annexedgroup_copied_objects_total{group="argoproj.io",resource="workflows",to="cluster"} [1-9]`,
	} {
		if !regexp.MustCompile("(?m)^" + strings.NewReplacer("{", `\{`, "}", `\}`).Replace(want)).Match(body) {
			t.Errorf("/metrics of the controller has no %s", want)
		}
	}
	if left := regexp.MustCompile(`(?m)^annex_annexedgroup_(phase|held_up){.*`).Find(body); left != nil {
		t.Errorf("a group that is gone is still told of: %s", left)
	}
}

func TestDifferencesOfChecks(t *testing.T) {
	page := "# Page\n\n### Checks\n\n| Check | livez | readyz | x |\n|---|---|---|---|\n| `ping` | yes | yes | x |\n| `post/*` | some | yes | x |\n| `etcd` | | some | x |\n\n### Other\n| `no` | yes | yes | x |\n"
	rows := checkRows(page, "Checks")
	if len(rows) != 3 {
		t.Fatalf("%d rows, want 3", len(rows))
	}
	for column, want := range map[string][]string{
		alive: {"not on the page: etcd", "only on the page: ping"},
		ready: {"only on the page: ping"},
	} {
		if got := differences(column, []string{"post/a", "etcd"}, rows); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", column, got, want)
		}
	}
}
