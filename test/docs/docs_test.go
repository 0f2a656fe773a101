// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs compares what pages say of rights and figures with where these come from.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeannex/annex/test/env"
)

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	root, err := env.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// section returns what stands below a heading of the second level.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, body, found := strings.Cut(page, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("there is no section %q", heading)
	}
	body, _, _ = strings.Cut(body, "\n## ")
	return body
}

// table returns the rows of the first table, without its head. Marks of code are taken off.
func table(text string) [][]string {
	var rows [][]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.ReplaceAll(strings.TrimSpace(cell), "`", ""))
		}
		rows = append(rows, cells)
	}
	return rows[min(2, len(rows)):]
}

// rights are "verb group/resource", one by one.
func rights(groups, resources, verbs []string) []string {
	var all []string
	for _, group := range groups {
		for _, resource := range resources {
			for _, verb := range verbs {
				all = append(all, fmt.Sprintf("%s %s/%s", verb, group, resource))
			}
		}
	}
	return all
}

// granted are the rights that a manifest gives.
func granted(t *testing.T, manifest string) []string {
	t.Helper()
	var all []string
	for document := range strings.SplitSeq(read(t, manifest), "\n---\n") {
		role := rbacv1.ClusterRole{}
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			groups, resources := slices.Clone(rule.APIGroups), slices.Clone(rule.Resources)
			for i := range groups {
				if groups[i] == "" {
					groups[i] = "core"
				}
			}
			for i := range resources {
				if len(rule.ResourceNames) > 0 {
					resources[i] += " (named)"
				}
			}
			all = append(all, rights(groups, resources, rule.Verbs)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// told are the rights in the table of a section of the page.
func told(text string) []string {
	var all []string
	list := func(cell string) []string { return strings.Split(cell, ", ") }
	for _, row := range table(text) {
		all = append(all, rights(list(row[0]), list(row[1]), list(row[2]))...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestSecurityTellsAllRights(t *testing.T) {
	page := read(t, "docs/security.md")
	for heading, manifest := range map[string]string{
		"What annex-apiserver may do":  "config/rbac/annex-apiserver.yaml",
		"What annex-controller may do": "config/rbac/annex-controller.yaml",
	} {
		t.Run(heading, func(t *testing.T) {
			if diff := cmp.Diff(granted(t, manifest), told(section(t, page, heading))); diff != "" {
				t.Errorf("rights (-%s +docs/security.md), tell each with its reason:\n%s", manifest, diff)
			}
		})
	}
}

func TestSizesAreThoseOfTheBenchmark(t *testing.T) {
	benchmarks := read(t, "docs/benchmarks.md")
	rows := table(section(t, read(t, "docs/install.md"), "Sizes"))
	if len(rows) == 0 {
		t.Fatal("there is no table of sizes")
	}
	for _, row := range rows {
		line := regexp.MustCompile(`(?m)^\|[^|]*\| ` + regexp.QuoteMeta(row[0]) + ` \|[^|]*\| ([^|(]*) \(`).FindStringSubmatch(benchmarks)
		if line == nil {
			t.Errorf("docs/benchmarks.md has no row %q", row[0])
			continue
		}
		if line[1] != row[1] {
			t.Errorf("docs/install.md says %s for %q, docs/benchmarks.md %s", row[1], row[0], line[1])
		}
	}
}
