// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/kubeannex/annex/test/env"
)

// step is one run of kubectl on both sides.
type step struct {
	// run is the command line without "kubectl", split at blanks; there is no shell.
	run string
	// stdin is the standard input.
	stdin string
	// env are more environment variables.
	env []string
	// wantExit is the exit code that both sides must have.
	wantExit int
	// want must be part of what the judge prints: it shows that the step did
	// what its author had in mind, and not the same mistake on both sides.
	want string
	// eventually repeats the step on annex's side until it prints the same: for
	// what kube-apiserver itself learns with a delay, as it does OpenAPI v2.
	eventually bool
	// unordered says that the output is JSON whose arrays may be in any order, as
	// in the discovery of CRDs.
	unordered bool
}

// side is one of the two worlds that are compared.
type side struct {
	name    string
	kubectl *env.Kubectl
}

// sides returns judge and annex, each with kubectl for a namespace of its own
// that was made for this test.
func sides(t *testing.T, namespace string) (judge, annexed side) {
	t.Helper()
	for _, s := range []struct {
		side *side
		name string
		host *env.Host
	}{{&judge, "judge", suite.judge}, {&annexed, "annex", suite.host}} {
		config, err := s.host.AdminConfig()
		if err != nil {
			t.Fatal(err)
		}
		if err := env.EnsureNamespace(testContext(t), config, namespace); err != nil {
			t.Fatal(err)
		}
		kubectl, err := s.host.Kubectl()
		if err != nil {
			t.Fatal(err)
		}
		*s.side = side{name: s.name, kubectl: kubectl.InNamespace(namespace)}
	}
	return judge, annexed
}

// runScript runs the steps one after the other on both sides.
func runScript(t *testing.T, namespace string, script []step) {
	t.Helper()
	judge, annexed := sides(t, namespace)
	ctx := testContext(t)
	for i, s := range script {
		runStep(ctx, t, fmt.Sprintf("step %d, kubectl %s", i+1, s.run), judge, annexed, s)
	}
}

func runStep(ctx context.Context, t *testing.T, name string, judge, annexed side, s step) {
	t.Helper()
	var want, got env.Result
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { want, err = judge.run(groupCtx, s); return err })
	group.Go(func() (err error) { got, err = annexed.run(groupCtx, s); return err })
	if err := group.Wait(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if want.ExitCode != s.wantExit {
		t.Errorf("%s: the judge's exit code is %d, want %d\n%s%s", name, want.ExitCode, s.wantExit, want.Stdout, want.Stderr)
	}
	if !strings.Contains(want.Stdout+want.Stderr, s.want) {
		t.Errorf("%s: the judge prints no %q:\n%s%s", name, s.want, want.Stdout, want.Stderr)
	}
	diff := cmp.Diff(s.normalize(want), s.normalize(got))
	for s.eventually && diff != "" && pause(ctx) {
		var err error
		if got, err = annexed.run(ctx, s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		diff = cmp.Diff(s.normalize(want), s.normalize(got))
	}
	if diff != "" {
		t.Errorf("%s: judge (-) and annex (+) differ:\n%s", name, diff)
	}
}

// pause waits between two attempts; false when ctx is done.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(time.Second):
		return true
	case <-ctx.Done():
		return false
	}
}

func (s side) run(ctx context.Context, what step) (env.Result, error) {
	result, err := s.kubectl.With(what.env...).RunInput(ctx, what.stdin, strings.Fields(what.run)...)
	if err != nil {
		return result, fmt.Errorf("on the side of the %s: %w", s.name, err)
	}
	return result, nil
}

// normalize replaces what must differ between two servers: identities, times,
// revisions, addresses and names of temporary files.
func (s step) normalize(result env.Result) env.Result {
	if s.unordered {
		result.Stdout = sortArrays(result.Stdout)
	}
	result.Stdout = normalizeText(result.Stdout)
	result.Stderr = normalizeText(result.Stderr)
	return result
}

// sortArrays sorts every array in a JSON text by the text of its elements. What
// is no JSON stays as it is.
func sortArrays(text string) string {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return text
	}
	data, err := json.Marshal(sortValue(value))
	if err != nil {
		return text
	}
	return string(data)
}

func sortValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = sortValue(value[key])
		}
	case []any:
		for i := range value {
			value[i] = sortValue(value[i])
		}
		slices.SortFunc(value, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return value
}

func normalizeText(text string) string {
	for _, rule := range []struct{ pattern, replacement string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, `<uid>`},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, `<time>`},
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}`, `<time>`},
		{`("?resourceVersion"?: ?)"\d+"`, `${1}<revision>`},
		{`(Resource Version: +)\d+`, `${1}<revision>`},
		{`("continue": ?)"[^"]+"`, `${1}<token>`},
		{`https://127\.0\.0\.1:\d+`, `<server>`},
		{`/tmp/[-\w./]+/(LIVE|MERGED)-\d+`, `<$1>`},
		{`/tmp/(LIVE|MERGED)-\d+`, `<$1>`},
		{`/tmp/kubectl-edit-\d+\.yaml`, `<file>`},
		{`(?m)([ \t])\d+(ms|s|m(\d+s)?)(?:[ \t]+|$)`, `${1}<age> `},
		{`(resource version to be \d+, was )\d+`, `${1}<revision>`},
		{`(?m)^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ `, `<log> `},
		// client-go says it of a watch without events that --timeout=1s ended, if that was just under a second old.
		{`(?m)^<log> .*very short watch.*\n`, ``},
		{`after \d+(\.\d+)?s`, `after <time>`},
	} {
		text = regexp.MustCompile(rule.pattern).ReplaceAllString(text, rule.replacement)
	}
	return text
}
