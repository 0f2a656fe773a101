// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/report"
)

// coldStart measures an API server from its start until it serves all endpoints, and
// then its memory.
type coldStart struct {
	apart *apart
	smoke bool
}

var (
	_ Scenario    = &coldStart{}
	_ Sided       = &coldStart{}
	_ Independent = &coldStart{}
	_ Titled      = &coldStart{}
	_ Paced       = &coldStart{}
)

func newColdStart(apart *apart, smoke bool) *coldStart { return &coldStart{apart: apart, smoke: smoke} }

// Name implements Scenario.
func (s *coldStart) Name() string { return "cold-start" }

// Title implements Titled.
func (s *coldStart) Title() string {
	return "Cold start: from the start of the process to all endpoints"
}

// Metrics implements Scenario. Times begin with the process. CPU is that of the API
// server and its etcd, memory that of the API server, which is all it has used so far.
func (s *coldStart) Metrics() []Metric {
	return []Metric{
		{Name: "ready", Title: "until /readyz", Unit: report.Seconds, Better: Lower},
		{Name: "node", Title: "until the LIST of a node, RV=0", Unit: report.Seconds, Better: Lower},
		{Name: "node.cpu", Title: "until the LIST of a node, CPU", Unit: report.Seconds, Better: Lower},
		{Name: "node.peak", Title: "until the LIST of a node, peak memory", Unit: report.Bytes, Better: Lower},
		{Name: "all", Title: "until the LIST of all, RV=0", Unit: report.Seconds, Better: Lower},
		{Name: "all.cpu", Title: "until the LIST of all, CPU", Unit: report.Seconds, Better: Lower},
		{Name: "all.peak", Title: "until the LIST of all, peak memory", Unit: report.Bytes, Better: Lower},
		{Name: "heap", Title: "live heap with all", Unit: report.Bytes, Better: Lower},
	}
}

// Independent implements Independent.
func (s *coldStart) Independent() {}

// Sides implements Sided: what is reached through the aggregator has no start of its own.
func (s *coldStart) Sides(*cluster.Cluster) []cluster.Side { return s.apart.cluster.Sides() }

// Rounds implements Paced.
func (s *coldStart) Rounds(asked int) (measured, warmup int) { return bootRounds(asked, s.smoke) }

// Prepare implements Scenario.
func (s *coldStart) Prepare(ctx context.Context, c *cluster.Cluster) error {
	if err := s.apart.open(ctx, c, c.Sizes.Endpoints); err != nil {
		return err
	}
	for _, side := range s.apart.cluster.Sides() {
		if err := cluster.Redefine(ctx, side, dataset.Endpoints, dataset.DefinitionOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// Round implements Scenario. It does as clients do: they come when the server is
// ready, and ask again while they are turned away.
func (s *coldStart) Round(ctx context.Context, _ *cluster.Cluster, side cluster.Side) (sample Sample, err error) {
	booted, err := s.apart.boot(side)
	defer func() { err = errors.Join(err, booted.close()) }()
	if err != nil {
		return Sample{}, err
	}
	metrics := map[string]float64{}
	if metrics["ready"], err = booted.waitForReady(ctx); err != nil {
		return Sample{}, err
	}
	if metrics["node"], err = booted.waitForList(ctx, dataset.Version, booted.sizes.OnNode(0)); err != nil {
		return Sample{}, fmt.Errorf("reading a node: %w", err)
	}
	if metrics["node.cpu"], metrics["node.peak"], err = booted.used(); err != nil {
		return Sample{}, err
	}
	if metrics["all"], err = booted.waitForList(ctx, dataset.Version, booted.sizes.All()); err != nil {
		return Sample{}, fmt.Errorf("reading all: %w", err)
	}
	if metrics["all.cpu"], metrics["all.peak"], err = booted.used(); err != nil {
		return Sample{}, err
	}
	memory, err := booted.memory(ctx)
	metrics["heap"] = float64(memory.live)
	return Sample{Metrics: metrics}, err
}

// Close implements Scenario.
func (s *coldStart) Close(context.Context) error { return s.apart.close() }
