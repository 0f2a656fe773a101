// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubeannex/annex/test/env"
)

// gadget is a manifest of a gadget; spec is YAML in flow style, such as {color: red}.
func gadget(name, spec string) string {
	return fmt.Sprintf("{apiVersion: lab.annex.test/v1, kind: Gadget, metadata: {name: %s}, spec: %s}\n", name, spec)
}

// labelled is a manifest of a gadget with metadata in flow style.
func labelled(metadata, spec string) string {
	return fmt.Sprintf("{apiVersion: lab.annex.test/v1, kind: Gadget, metadata: %s, spec: %s}\n", metadata, spec)
}

// seed is the manifest of the first n gadgets of the series that the fixtures define.
func seed(t *testing.T, n int) string {
	t.Helper()
	var documents []string
	for i := range n {
		data, err := yaml.Marshal(env.SeedGadget("", i).Object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(data))
	}
	return strings.Join(documents, "---\n")
}

// editor is an environment that makes a shell script the editor of kubectl. The
// script gets the file to edit as $1.
func editor(t *testing.T, script string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"KUBE_EDITOR=" + path}
}
