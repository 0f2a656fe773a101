// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

const upstreamSuites = "k8s.io/apiserver/pkg/storage/testing"

// suite runs one exported Run… function of upstream's storage tests.
type suite struct {
	options func(t *testing.T) stackOptions
	gates   map[featuregate.Feature]bool
	run     func(ctx context.Context, t *testing.T, s *stack)
	// notOn gives, per stack on which the function cannot pass, the reason. It
	// is the complete list of what is left out.
	notOn map[mode]string
	// alone says that the function sets feature gates, which are those of the process.
	alone bool
}

// suites are keyed by the name of the upstream function, and by a variant after
// a slash where one function is run in several ways.
func suites() map[string]suite {
	all := map[string]suite{}
	for _, part := range []map[string]suite{writeSuites(), statsSuites(), corruptionSuites(), corruptDeletionSuites(), listSuites(), watchSuites()} {
		maps.Copy(all, part)
	}
	return all
}

// TestUpstreamSuites runs upstream's storage suites over the outermost layer of
// both stacks, each with an etcd of its own, and over the cached one with indexes
// as well: by everything that the suites select by, dispatched by a field and by a label, and
// with a cache that the first read starts. The stacks take their turns through a suite
// together, as most of its time is waiting.
func TestUpstreamSuites(t *testing.T) {
	indexes := Indexes{Fields: []string{nameField, "spec.nodeName", "status.phase"}, Labels: []string{"even", "foo"}}
	byField, byLabel := indexes, indexes
	byField.Trigger.Field, byLabel.Trigger.Label = "spec.nodeName", "even"
	stacks := map[string]suiteStack{
		string(cached):     {mode: cached},
		string(uncached):   {mode: uncached},
		"indexed by field": {mode: cached, declared: byField},
		"indexed by label": {mode: cached, declared: byLabel},
		"started lazily":   {mode: cached, declared: byField, lazy: true},
		"compact":          {mode: cached, declared: byLabel, compact: true},
	}
	for name, suite := range suites() {
		t.Run(name, func(t *testing.T) {
			for gate, enabled := range suite.gates {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, gate, enabled)
			}
			var running sync.WaitGroup
			defer running.Wait()
			for variant, stack := range stacks {
				if suite.notOn[stack.mode] != "" || stack.lazy && suite.notOn[lazily] != "" {
					continue
				}
				running.Go(func() {
					t.Run(variant, func(t *testing.T) { suite.runOn(t, stack) })
				})
				if suite.alone {
					running.Wait()
				}
			}
		})
	}
}

// suiteStack is a stack that the suites run on.
type suiteStack struct {
	mode     mode
	declared Indexes
	lazy     bool
	compact  bool
}

func (s suite) runOn(t *testing.T, stack suiteStack) {
	t.Helper()
	var opts stackOptions
	if s.options != nil {
		opts = s.options(t)
	}
	opts.declared, opts.lazy, opts.compact = stack.declared, stack.lazy, stack.compact
	s.run(t.Context(), t, newStack(t, stack.mode, opts))
}

// TestEveryUpstreamSuiteIsRun compares the suites with what upstream's package
// offers and with what the code of the suites really calls.
func TestEveryUpstreamSuiteIsRun(t *testing.T) {
	upstream := upstreamFunctions(t)
	calls := calledBySuites(t)
	listed := map[string]bool{}
	for name, suite := range suites() {
		function, _, _ := strings.Cut(name, "/")
		listed[function] = true
		if !slices.Contains(upstream, function) {
			t.Errorf("suite %q: upstream has no function of that name", name)
		}
		if !slices.Contains(calls[name], function) {
			t.Errorf("suite %q does not call %s", name, function)
		}
		if suite.notOn[cached] != "" && suite.notOn[uncached] != "" {
			t.Errorf("suite %q runs on no stack", name)
		}
	}
	for _, function := range upstream {
		if !listed[function] {
			t.Errorf("upstream function %s is not among the suites: run it, or give the reason in notOn", function)
		}
	}
}

// upstreamFunctions returns the exported functions of upstream's package that
// are tests: named Run… and taking a *testing.T or testing.TB.
func upstreamFunctions(t *testing.T) []string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", upstreamSuites).Output()
	if err != nil {
		t.Fatalf("finding the source of %s (is the go command in PATH?): %v", upstreamSuites, err)
	}
	var functions []string
	for _, file := range parseGlob(t, filepath.Join(strings.TrimSpace(string(output)), "*.go"), func(name string) bool {
		return !strings.HasSuffix(name, "_test.go")
	}) {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if ok && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Run") && takesTest(function.Type) {
				functions = append(functions, function.Name.Name)
			}
		}
	}
	if len(functions) < 54 {
		t.Fatalf("found only %d functions in %s, want at least the 54 of version 0.37.2", len(functions), upstreamSuites)
	}
	return functions
}

func takesTest(function *ast.FuncType) bool {
	return slices.ContainsFunc(function.Params.List, func(parameter *ast.Field) bool {
		kind := parameter.Type
		if pointer, ok := kind.(*ast.StarExpr); ok {
			kind = pointer.X
		}
		selector, ok := kind.(*ast.SelectorExpr)
		return ok && (selector.Sel.Name == "T" || selector.Sel.Name == "TB")
	})
}

// calledBySuites returns, by key of the suites' maps, the functions of package
// storagetesting that the entry mentions.
func calledBySuites(t *testing.T) map[string][]string {
	t.Helper()
	calls := map[string][]string{}
	for _, file := range parseGlob(t, "suite*_test.go", nil) {
		ast.Inspect(file, func(node ast.Node) bool {
			entry, ok := node.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			key, ok := entry.Key.(*ast.BasicLit)
			if !ok || key.Kind != token.STRING {
				return true
			}
			name := strings.Trim(key.Value, `"`)
			ast.Inspect(entry.Value, func(node ast.Node) bool {
				if selector, ok := node.(*ast.SelectorExpr); ok {
					if pkg, ok := selector.X.(*ast.Ident); ok && pkg.Name == "storagetesting" {
						calls[name] = append(calls[name], selector.Sel.Name)
					}
				}
				return true
			})
			return true
		})
	}
	return calls
}

func parseGlob(t *testing.T, pattern string, keep func(name string) bool) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if keep != nil && !keep(name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		t.Fatal(&fs.PathError{Op: "parsing", Path: pattern, Err: fs.ErrNotExist})
	}
	return files
}
