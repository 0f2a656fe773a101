// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// suiteImportPath is the import path of the root of the suite.
const suiteImportPath = "k8s.io/apiextensions-apiserver/test/integration"

// testPackage is one package of the suite.
type testPackage struct {
	// dir is its folder, relative to the root of the suite.
	dir string
	// tests are the names of its test functions, as the source has them: build constraints do not hide any.
	tests []string
}

func (p testPackage) importPath() string {
	return path.Join(suiteImportPath, filepath.ToSlash(p.dir))
}

// binary is the name that `go test -c` gives the package's test binary.
func (p testPackage) binary() string {
	return path.Base(p.importPath()) + ".test"
}

// findPackages returns every package below root that has tests, sorted by folder.
func findPackages(root string) ([]testPackage, error) {
	tests := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		names, err := testFunctions(name)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		tests[dir] = append(tests[dir], names...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for tests: %w", err)
	}
	var packages []testPackage
	for dir, names := range tests {
		slices.Sort(names)
		packages = append(packages, testPackage{dir: dir, tests: names})
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("looking for tests: none below %s", root)
	}
	slices.SortFunc(packages, func(a, b testPackage) int { return strings.Compare(a.dir, b.dir) })
	return packages, nil
}

// testName is what the go command takes for a test (go help testfunc).
var testName = regexp.MustCompile(`^Test(\P{Ll}.*)?$`)

func testFunctions(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, declaration := range parsed.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if ok && function.Recv == nil && function.Name.Name != "TestMain" && testName.MatchString(function.Name.Name) {
			names = append(names, function.Name.Name)
		}
	}
	return names, nil
}

// exclusion is a test, or a subtest, that does not apply to annex.
type exclusion struct {
	name   string
	reason string
}

// top returns the name of the test function.
func (e exclusion) top() string {
	name, _, _ := strings.Cut(e.name, "/")
	return name
}

type exclusions []exclusion

// readExclusions reads lines of a name and a reason. Empty lines and those that begin with # are comments.
func readExclusions(file string) (exclusions, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading excluded tests: %w", err)
	}
	var list exclusions
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, _ := strings.Cut(line, " ")
		if reason = strings.TrimSpace(reason); reason == "" {
			return nil, fmt.Errorf("%s:%d: %s has no reason: write it behind the name", file, number, name)
		}
		if list.has(name) {
			return nil, fmt.Errorf("%s:%d: %s is listed twice: remove one", file, number, name)
		}
		list = append(list, exclusion{name: name, reason: reason})
	}
	return list, nil
}

// has tells whether the test or subtest itself is listed.
func (l exclusions) has(name string) bool {
	return slices.ContainsFunc(l, func(e exclusion) bool { return e.name == name })
}

// checkKnown refuses names that upstream does not have any more.
func (l exclusions) checkKnown(packages []testPackage) error {
	for _, e := range l {
		known := slices.ContainsFunc(packages, func(p testPackage) bool { return slices.Contains(p.tests, e.top()) })
		if !known {
			return fmt.Errorf("excluded test %s does not exist in the suite: remove it from the list", e.name)
		}
	}
	return nil
}

// pattern is the value of -test.skip that leaves out exactly the listed tests.
func (l exclusions) pattern() string {
	alternatives := make([]string, 0, len(l))
	for _, e := range l {
		elements := strings.Split(e.name, "/")
		for i, element := range elements {
			elements[i] = "^" + regexp.QuoteMeta(element) + "$"
		}
		alternatives = append(alternatives, strings.Join(elements, "/"))
	}
	return strings.Join(alternatives, "|")
}

// table is the list as docs/conformance.md shows it.
func (l exclusions) table() string {
	if len(l) == 0 {
		return "None.\n"
	}
	var b strings.Builder
	b.WriteString("| Test | Reason |\n|---|---|\n")
	for _, e := range l {
		fmt.Fprintf(&b, "| `%s` | %s |\n", e.name, e.reason)
	}
	return b.String()
}
