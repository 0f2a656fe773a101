// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindPackages(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a_test.go":         "package a\nfunc TestB(t *testing.T) {}\nfunc TestA(t *testing.T) {}\nfunc TestMain(m *testing.M) {}\n",
		"helpers.go":        "package a\nfunc TestNot(t *testing.T) {}\n",
		"sub/b_test.go":     "//go:build never\n\npackage b\nfunc TestHidden(t *testing.T) {}\nfunc Testing() {}\nfunc (s s) TestMethod() {}\n",
		"without/helper.go": "package c\n",
	} {
		write(t, filepath.Join(root, name), text)
	}
	got, err := findPackages(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []testPackage{{dir: ".", tests: []string{"TestA", "TestB"}}, {dir: "sub", tests: []string{"TestHidden"}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(testPackage{})); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	if got, want := got[1].binary(), "sub.test"; got != want {
		t.Errorf("binary is %s, want %s", got, want)
	}
	if got, want := got[0].binary(), "integration.test"; got != want {
		t.Errorf("binary is %s, want %s", got, want)
	}
}

func TestFindPackagesRefusesAnEmptySuite(t *testing.T) {
	if got, err := findPackages(t.TempDir()); err == nil {
		t.Errorf("got %v, want an error", got)
	}
}

func TestReadExclusions(t *testing.T) {
	cases := map[string]struct {
		text      string
		want      exclusions
		wantError string
	}{
		"comments and empty lines are passed over": {
			text: "# why\n\nTestA/b_c  needs a cluster\nTestD another reason\n",
			want: exclusions{{name: "TestA/b_c", reason: "needs a cluster"}, {name: "TestD", reason: "another reason"}},
		},
		"a reason must be given": {text: "TestA\n", wantError: "has no reason"},
		"a name occurs once":     {text: "TestA x\nTestA y\n", wantError: "listed twice"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "excluded.txt")
			write(t, file, tc.text)
			got, err := readExclusions(file)
			if tc.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantError) {
					t.Fatalf("error is %v, want %q", err, tc.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(exclusion{})); diff != "" {
				t.Errorf("exclusions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExclusionsPattern(t *testing.T) {
	list := exclusions{{name: "TestA"}, {name: "TestB/x.y"}}
	if got, want := list.pattern(), `^TestA$|^TestB$/^x\.y$`; got != want {
		t.Errorf("pattern is %s, want %s", got, want)
	}
}

func TestShard(t *testing.T) {
	cases := map[string]struct {
		tests []string
		n     int
		want  []string
	}{
		"tests are dealt in turn":    {tests: []string{"TestA", "TestB", "TestC"}, n: 2, want: []string{"^(TestA|TestC)$", "^(TestB)$"}},
		"there are no empty shards":  {tests: []string{"TestA"}, n: 3, want: []string{"^(TestA)$"}},
		"less than one shard is one": {tests: []string{"TestA", "TestB"}, n: 0, want: []string{"^(TestA|TestB)$"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, shard(tc.tests, tc.n)); diff != "" {
				t.Errorf("patterns (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExclusionsMustExist(t *testing.T) {
	packages := []testPackage{{dir: ".", tests: []string{"TestA"}}}
	if err := (exclusions{{name: "TestA/b"}}).checkKnown(packages); err != nil {
		t.Errorf("a known test is refused: %v", err)
	}
	if err := (exclusions{{name: "TestGone"}}).checkKnown(packages); err == nil {
		t.Error("an unknown test is accepted")
	}
}

// TestDocumentListsExclusions keeps docs/conformance.md in step with excluded.txt.
func TestDocumentListsExclusions(t *testing.T) {
	list, err := readExclusions("excluded.txt")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- excluded.txt begin -->\n", "<!-- excluded.txt end -->\n"
	_, rest, hasBegin := strings.Cut(string(text), begin)
	got, _, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("docs/conformance.md has no %q and %q", begin, end)
	}
	if diff := cmp.Diff("\n"+list.table()+"\n", got); diff != "" {
		t.Errorf("docs/conformance.md differs from excluded.txt, put this between its markers:\n%s\n(-want +got):\n%s", list.table(), diff)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
