// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"
)

// TestLint runs Helm's own checks.
func TestLint(t *testing.T) {
	for name, values := range valuesSets(t) {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, err := helm(t, "lint", "--strict", chart(t), "--namespace="+namespace, "--values="+values)
			if err != nil {
				t.Errorf("%v\n%s%s", err, stdout, stderr)
			}
		})
	}
}

// TestAccepted gives what is rendered to a real kube-apiserver, which decodes,
// defaults, validates and admits it, and keeps nothing.
func TestAccepted(t *testing.T) {
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		var accounts, rest []string
		for _, d := range all {
			if d.GetKind() == "ServiceAccount" {
				accounts = append(accounts, d.text)
			}
			rest = append(rest, d.text)
		}
		// A pod is refused while its ServiceAccount is not there.
		world.kubectl.MustRunInput(t, strings.Join(accounts, "\n---\n"), "apply", "--filename=-")
		result, err := world.kubectl.RunInput(t.Context(), strings.Join(rest, "\n---\n"), "apply", "--dry-run=server", "--validate=strict", "--filename=-")
		if err != nil {
			t.Fatal(err)
		}
		if result.ExitCode != 0 || result.Stderr != "" {
			t.Errorf("exit code %d\n%s", result.ExitCode, result.Stderr)
		}
		if got := strings.Count(result.Stdout, "(server dry run)"); got != len(all) {
			t.Errorf("%d objects accepted, %d rendered:\n%s", got, len(all), result.Stdout)
		}
	})
}

// TestObjectsAreDistinct finds objects that would overwrite each other.
func TestObjectsAreDistinct(t *testing.T) {
	onEverySet(t, func(t *testing.T, _ string, all []document) {
		t.Helper()
		seen := map[string]bool{}
		for _, d := range all {
			id := strings.Join([]string{d.GetAPIVersion(), d.GetKind(), d.GetNamespace(), d.GetName()}, " ")
			if seen[id] {
				t.Errorf("%s is rendered twice", id)
			}
			seen[id] = true
		}
	})
}
