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

// coldStart measures an API server from its start until it serves endpoints from its
// cache, which then holds all of them, and its memory. The servers are those of the main
// cluster: it has to come last of the scenarios that need them, as the host has to
// forget annex's group, which it would wait for.
type coldStart struct {
	apart *apart
	smoke bool
}

var (
	_ Scenario = &coldStart{}
	_ Sided    = &coldStart{}
	_ Titled   = &coldStart{}
	_ Paced    = &coldStart{}

	_ Restarting = &coldStart{}
)

func newColdStart(smoke bool) *coldStart { return &coldStart{smoke: smoke} }

// Name implements Scenario.
func (s *coldStart) Name() string { return "cold-start" }

// Title implements Titled.
func (s *coldStart) Title() string {
	return "Cold start: from the start of the process to answers from its cache"
}

// Metrics implements Scenario. Times begin with the process. CPU is that of the API
// server and its etcd, memory that of the API server, which is all it has used so far.
func (s *coldStart) Metrics() []Metric {
	return []Metric{
		{Name: "ready", Title: "until /readyz", Unit: report.Seconds, Better: Lower},
		{Name: "node", Title: "until the LIST of a node, RV=0", Unit: report.Seconds, Better: Lower},
		{Name: "node.cpu", Title: "until the LIST of a node, CPU", Unit: report.Seconds, Better: Lower},
		{Name: "node.peak", Title: "until the LIST of a node, peak memory", Unit: report.Bytes, Better: Lower},
		{Name: "heap", Title: "live heap", Unit: report.Bytes, Better: Lower},
		{Name: "resident", Title: "resident", Unit: report.Bytes, Better: Lower},
	}
}

// Sides implements Sided: what is reached through the aggregator has no start of its own.
func (s *coldStart) Sides(*cluster.Cluster) []cluster.Side { return s.apart.cluster.Sides() }

// Restarts implements Restarting.
func (s *coldStart) Restarts() {}

// Rounds implements Paced.
func (s *coldStart) Rounds(asked int) (measured, warmup int) { return bootRounds(asked, s.smoke) }

// Prepare implements Scenario.
func (s *coldStart) Prepare(ctx context.Context, c *cluster.Cluster) error {
	direct, err := c.Detach(ctx)
	if err != nil {
		return err
	}
	s.apart = &apart{cluster: direct}
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
	memory, err := booted.memory(ctx)
	metrics["heap"], metrics["resident"] = float64(memory.live), float64(memory.resident)
	return Sample{Metrics: metrics}, err
}

// Close implements Scenario. The servers stay.
func (s *coldStart) Close(context.Context) error { return nil }
