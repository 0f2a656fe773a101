// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const stream = `
{"Action":"start"}
{"Action":"run","Test":"TestGood"}
{"Action":"output","Test":"TestGood","Output":"quiet\n"}
{"Action":"pass","Test":"TestGood","Elapsed":0.5}
{"Action":"run","Test":"TestBad"}
{"Action":"run","Test":"TestBad/part"}
{"Action":"output","Test":"TestBad/part","Output":"what is wrong\n"}
{"Action":"fail","Test":"TestBad/part"}
{"Action":"fail","Test":"TestBad","Elapsed":2}
{"Action":"skip","Test":"TestLeft"}
{"Action":"run","Test":"TestUnfinished"}
{"Action":"output","Test":"TestUnfinished","Output":"panic\n"}
{"Action":"fail"}
`

func TestCollect(t *testing.T) {
	var log, out bytes.Buffer
	got, err := collect(strings.NewReader(stream), &log, &out)
	if err != nil {
		t.Fatal(err)
	}
	want := results{"TestGood": "pass", "TestBad": "fail", "TestBad/part": "fail", "TestLeft": "skip", "TestUnfinished": "run"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("quiet\nwhat is wrong\npanic\n", log.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	wantOut := "pass TestGood (0.5s)\nfail TestBad (2.0s)\nwhat is wrong\nskip TestLeft (0.0s)\n" +
		"fail TestUnfinished (its process ended)\npanic\n"
	if diff := cmp.Diff(wantOut, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestCollectRefusesWhatIsNoEvent(t *testing.T) {
	if got, err := collect(strings.NewReader("FAIL\n"), &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
		t.Errorf("got %v, want an error", got)
	}
}

func TestSummarize(t *testing.T) {
	cases := map[string]struct {
		tests        []string
		seen         results
		excluded     exclusions
		partial      bool
		wantLine     string
		wantProblems []string
	}{
		"everything passes": {
			tests:    []string{"TestA"},
			seen:     results{"TestA": actionPass, "TestA/x": actionPass},
			wantLine: "1 passed, 0 failed, 0 excluded (subtests: 1 passed, 0 failed)",
		},
		"a failure is named with its subtest": {
			tests:        []string{"TestA"},
			seen:         results{"TestA": actionFail, "TestA/x": actionFail},
			wantLine:     "0 passed, 1 failed, 0 excluded (subtests: 0 passed, 1 failed)",
			wantProblems: []string{"TestA failed", "TestA/x failed"},
		},
		"a crash fails the test that ran and those behind it": {
			tests:        []string{"TestA", "TestB", "TestC"},
			seen:         results{"TestA": actionPass, "TestB": actionRun},
			wantLine:     "1 passed, 1 failed, 0 excluded (subtests: 0 passed, 0 failed)",
			wantProblems: []string{"TestB did not end", "TestC did not run and is not in excluded.txt"},
		},
		"a partial run misses nothing": {
			tests:    []string{"TestA", "TestB"},
			seen:     results{"TestA": actionPass},
			partial:  true,
			wantLine: "1 passed, 0 failed, 0 excluded (subtests: 0 passed, 0 failed)",
		},
		"upstream's own skips need a reason": {
			tests:    []string{"TestA", "TestB"},
			seen:     results{"TestA": actionSkip, "TestB": actionPass, "TestB/x": actionSkip},
			wantLine: "1 passed, 0 failed, 0 excluded (subtests: 0 passed, 0 failed)",
			wantProblems: []string{
				"TestA was skipped by upstream and is not in excluded.txt",
				"TestB/x was skipped by upstream and is not in excluded.txt",
			},
		},
		"what is listed may be left out": {
			tests:    []string{"TestA", "TestB", "TestC"},
			seen:     results{"TestB": actionPass, "TestC": actionSkip},
			excluded: exclusions{{name: "TestA"}, {name: "TestB/x"}, {name: "TestC"}, {name: "TestElsewhere/x"}},
			wantLine: "1 passed, 0 failed, 3 excluded (subtests: 0 passed, 0 failed)",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := summarize(testPackage{tests: tc.tests}, tc.seen, tc.excluded, tc.partial)
			if diff := cmp.Diff(tc.wantLine, got.String()); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantProblems, got.problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
