// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/report"
)

// environment describes the run for the report.
func (r *run) environment(ctx context.Context) (report.Environment, error) {
	machine, err := report.ThisMachine()
	if err != nil {
		return report.Environment{}, err
	}
	versions, err := r.versions(ctx)
	if err != nil {
		return report.Environment{}, err
	}
	return report.Environment{
		Date: r.begin, Command: report.CommandLine("go run ./test/bench", r.args...),
		Machine: machine, Versions: versions, Sizes: r.sizeItems(), Options: r.changes(), Incomplete: r.incomplete,
	}, nil
}

// askVersions asks every program that was measured.
func (r *run) askVersions(ctx context.Context) ([]report.Item, error) {
	var items []report.Item
	for _, name := range []string{"kube-apiserver", "annex-apiserver", "etcd"} {
		program, err := r.env.Program(name)
		if err != nil {
			return nil, err
		}
		text, err := exec.CommandContext(ctx, program, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("asking %s for its version: %w", name, err)
		}
		line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		items = append(items, report.Item{Name: name, Value: line})
	}
	return items, nil
}

func (r *run) sizeItems() []report.Item {
	var items []report.Item
	sizes := r.sizes()
	for _, kind := range dataset.Kinds() {
		items = append(items, report.Item{
			Name: kind.Resource(), Value: fmt.Sprintf("%d of about %d bytes on each side", sizes.Count(kind), kind.Bytes()),
		})
	}
	idle := []string{"not measured"}
	if r.cluster != nil && r.cluster.Idle != nil {
		idle = nil
		for _, side := range r.cluster.Sides() {
			idle = append(idle, fmt.Sprintf("%s %.3f cores", side.Name, r.cluster.Idle[side.Name]))
		}
	}
	return append(items,
		report.Item{Name: "nodes, namespaces", Value: fmt.Sprintf("%d, %d", sizes.Nodes, sizes.Namespaces)},
		report.Item{Name: "rounds", Value: fmt.Sprintf("%d for each side in turn, after one that is thrown away, where a scenario does not say otherwise", r.Rounds)},
		report.Item{Name: "idle servers, part of every CPU time", Value: strings.Join(idle, ", ")},
		report.Item{Name: "etcd", Value: "one server for each side on the same disk, default durability"},
	)
}
