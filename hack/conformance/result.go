// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Actions of a test in the event stream (go doc cmd/test2json). A test that ends has one of the last three.
const (
	actionRun  = "run"
	actionPass = "pass"
	actionFail = "fail"
	actionSkip = "skip"
)

// event is one line of the output of test2json.
type event struct {
	Action  string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

// results are the last action of every test and subtest, by name. It is actionRun for a test during which its
// process ended.
type results map[string]string

// failed tells whether any test did, or never ended.
func (r results) failed() bool {
	for _, action := range r {
		if action == actionFail || action == actionRun {
			return true
		}
	}
	return false
}

// collect reads events until their end, writes all output to log, and reports each test function to
// out: one line, and what it printed when it did not succeed.
func collect(events io.Reader, log, out io.Writer) (results, error) {
	final := results{}
	printed := map[string][]string{}
	decoder := json.NewDecoder(events)
	for {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			reportUnfinished(final, printed, out)
			return final, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading test events: %w", err)
		}
		top, _, isSubtest := strings.Cut(e.Test, "/")
		switch e.Action {
		case "output":
			if _, err := io.WriteString(log, e.Output); err != nil {
				return nil, fmt.Errorf("writing the log: %w", err)
			}
			printed[top] = append(printed[top], e.Output)
		case actionRun:
			final[e.Test] = e.Action
		case actionPass, actionFail, actionSkip:
			if e.Test == "" {
				continue
			}
			final[e.Test] = e.Action
			if isSubtest {
				continue
			}
			line := fmt.Sprintf("%-4s %s (%.1fs)\n", e.Action, e.Test, e.Elapsed)
			if e.Action == actionFail {
				line += strings.Join(printed[top], "")
			}
			fmt.Fprint(out, line)
			delete(printed, top)
		}
	}
}

func reportUnfinished(final results, printed map[string][]string, out io.Writer) {
	for name, action := range final {
		if action == actionRun && !strings.Contains(name, "/") {
			fmt.Fprintf(out, "fail %s (its process ended)\n%s", name, strings.Join(printed[name], ""))
		}
	}
}

// summary counts the test functions and subtests of one or more packages.
type summary struct {
	passed, failed, excluded       int
	passedSubtests, failedSubtests int
	// problems are sentences. Without one, the suite has succeeded.
	problems []string
}

// summarize compares what a package has with what was seen. A partial run misses nothing.
func summarize(p testPackage, seen results, excluded exclusions, partial bool) *summary {
	s := &summary{}
	for _, name := range p.tests {
		switch action := seen[name]; {
		case action == actionPass:
			s.passed++
		case action == actionFail:
			s.failed++
			s.problems = append(s.problems, name+" failed")
		case action == actionRun:
			s.failed++
			s.problems = append(s.problems, name+" did not end")
		case excluded.has(name):
			s.excluded++
		case action == actionSkip:
			s.problems = append(s.problems, name+" was skipped by upstream and is not in excluded.txt")
		case !partial:
			s.problems = append(s.problems, name+" did not run and is not in excluded.txt")
		}
	}
	for name, action := range seen {
		if !strings.Contains(name, "/") {
			continue
		}
		switch action {
		case actionPass:
			s.passedSubtests++
		case actionFail:
			s.failedSubtests++
			s.problems = append(s.problems, name+" failed")
		case actionSkip:
			if !excluded.has(name) {
				s.problems = append(s.problems, name+" was skipped by upstream and is not in excluded.txt")
			}
		}
	}
	for _, e := range excluded {
		if e.name != e.top() && slices.Contains(p.tests, e.top()) {
			s.excluded++
		}
	}
	slices.Sort(s.problems)
	return s
}

func (s *summary) add(other *summary) {
	s.passed += other.passed
	s.failed += other.failed
	s.excluded += other.excluded
	s.passedSubtests += other.passedSubtests
	s.failedSubtests += other.failedSubtests
	s.problems = append(s.problems, other.problems...)
}

// String is the last line of a run.
func (s *summary) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d excluded (subtests: %d passed, %d failed)",
		s.passed, s.failed, s.excluded, s.passedSubtests, s.failedSubtests)
}
