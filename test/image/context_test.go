// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ignoring says which files a .dockerignore keeps out of the context. Of all patterns that match a file, or a
// folder that it is in, the last one decides.
func ignoring(dockerignore string) func(file string) bool {
	type rule struct {
		pattern *regexp.Regexp
		keep    bool
	}
	var rules []rule
	for line := range strings.Lines(dockerignore) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, keep := strings.CutPrefix(line, "!")
		quoted := strings.NewReplacer(`\*\*/`, "(?:.*/)?", `\*`, "[^/]*").Replace(regexp.QuoteMeta(strings.Trim(pattern, "/")))
		rules = append(rules, rule{regexp.MustCompile("^" + quoted + "(?:/.*)?$"), keep})
	}
	return func(file string) bool {
		ignored := false
		for _, r := range rules {
			if r.pattern.MatchString(file) {
				ignored = !r.keep
			}
		}
		return ignored
	}
}

func TestIgnoring(t *testing.T) {
	ignored := ignoring("# comment\n*\n!go.mod\n!pkg\n**/*_test.go\n**/testdata\n")
	want := []string{"go.mod", "pkg/a.go", "pkg/b/c.go"}
	got := slices.DeleteFunc([]string{
		"README.md", "go.mod", "go.model", "pkg/a.go", "pkg/a_test.go", "pkg/b/c.go", "pkg/b/c_test.go", "pkg/testdata/x.go", "pkgs/a.go", "test/pkg/a.go", "_output/bin/annex",
	}, ignored)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("context (-want +got):\n%s", diff)
	}
}

// copyContext copies what a builder would be sent: the files of the repository, of which nothing is git's own or
// ignored by git, limited by .dockerignore.
func copyContext(ctx context.Context, root, to string) error {
	rules, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		return err
	}
	ignored := ignoring(string(rules))
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	output, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing the files of the repository: %w: run the test in a clone", err)
	}
	for file := range strings.SplitSeq(strings.TrimRight(string(output), "\x00"), "\x00") {
		if ignored(file) {
			continue
		}
		if err := copyFile(filepath.Join(root, file), filepath.Join(to, file)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// copyFile copies a file, or makes a second name for it, with its mode.
func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm())
}
