// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubeannex/annex/test/env"
)

// namespace is where the chart is rendered for.
const namespace = env.AnnexNamespace

// path returns a file of the repository.
func path(t *testing.T, name string) string {
	t.Helper()
	root, err := env.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, filepath.FromSlash(name))
}

func chart(t *testing.T) string {
	t.Helper()
	return path(t, "config/chart/annex")
}

// valuesSets returns the files of config/chart/annex/ci by name.
func valuesSets(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chart(t), "ci", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string]string{}
	for _, file := range files {
		sets[strings.TrimSuffix(filepath.Base(file), ".yaml")] = file
	}
	for _, name := range []string{"embedded", "statefulset", "external", "cert-manager", "existing", "everything"} {
		if sets[name] == "" {
			t.Errorf("config/chart/annex/ci/%s.yaml is missing", name)
		}
	}
	return sets
}

// helm runs Helm without a cluster and with a home of its own. It returns both
// outputs; an exit code other than 0 is an error.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return helmAt(t, filepath.Join(t.TempDir(), "none"), args...)
}

// helmAt runs Helm at the cluster of a kubeconfig.
func helmAt(t *testing.T, kubeconfig string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return runHelm(t.Context(), t.TempDir(), kubeconfig, args...)
}

func runHelm(ctx context.Context, home, kubeconfig string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, world.helm, args...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

// render returns the manifests of the chart as text.
func render(t *testing.T, args ...string) string {
	t.Helper()
	args = slices.Concat([]string{"template", "annex", chart(t), "--namespace=" + namespace}, args)
	stdout, stderr, err := helm(t, args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	return stdout
}

// renderSets renders the chart with each file of config/chart/annex/ci.
func renderSets(ctx context.Context, home string) (map[string][]document, error) {
	root, err := env.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	chart := filepath.Join(root, "config", "chart", "annex")
	files, err := filepath.Glob(filepath.Join(chart, "ci", "*.yaml"))
	if err != nil {
		return nil, err
	}
	sets := map[string][]document{}
	for _, file := range files {
		stdout, stderr, err := runHelm(ctx, home, filepath.Join(home, "none"), "template", "annex", chart, "--namespace="+namespace, "--values="+file)
		if err != nil {
			return nil, fmt.Errorf("helm template --values=%s: %w: %s", file, err, stderr)
		}
		if sets[strings.TrimSuffix(filepath.Base(file), ".yaml")], err = parse(stdout); err != nil {
			return nil, fmt.Errorf("rendering %s: %w", file, err)
		}
	}
	return sets, nil
}

// onEverySet runs a test over what each set of values renders. It must not change that.
func onEverySet(t *testing.T, test func(t *testing.T, name string, all []document)) {
	t.Helper()
	for name := range valuesSets(t) {
		t.Run(name, func(t *testing.T) { test(t, name, world.sets[name]) })
	}
}

// document is one rendered object.
type document struct {
	unstructured.Unstructured

	// text is the object as it was rendered, with comments.
	text string
}

// documents takes rendered text apart.
func documents(t *testing.T, text string) []document {
	t.Helper()
	all, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parse(text string) ([]document, error) {
	var all []document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		content, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		object := map[string]any{}
		if err := yaml.UnmarshalStrict(content, &object); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, content)
		}
		if len(object) > 0 {
			all = append(all, document{Unstructured: unstructured.Unstructured{Object: object}, text: string(content)})
		}
	}
}

// find returns the only object of a kind with a name.
func find(t *testing.T, all []document, kind, name string) document {
	t.Helper()
	var found []document
	for _, d := range all {
		if d.GetKind() == kind && d.GetName() == name {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects %s %s, want 1", len(found), kind, name)
	}
	return found[0]
}
