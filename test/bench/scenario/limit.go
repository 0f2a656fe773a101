// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/memserver"
	"github.com/kubeannex/annex/test/env"
)

// megabyte is what throughput is counted in.
const megabyte = 1e6

// SideMemory is a server that has the answer in memory already.
const SideMemory = "memory"

// limit compares a full LIST of the host with a server that has nothing to do but to send the
// same bytes over TLS: nothing that makes the answer can be faster.
type limit struct {
	list    fullList
	clients clients
	server  *memserver.Server
}

var (
	_ Scenario = &limit{}
	_ Sided    = &limit{}
	_ Titled   = &limit{}
)

func newLimit() *limit { return &limit{list: plainList(freshnesses()[0])} }

// Name implements Scenario.
func (s *limit) Name() string { return "limit" }

// Title implements Titled.
func (s *limit) Title() string { return "The physical limit: the same bytes from memory" }

// Metrics implements Scenario.
func (s *limit) Metrics() []Metric {
	rate := Metric{Name: s.list.name + ".rate", Title: s.list.title + ", throughput", Unit: "MB/s", Better: Higher}
	return append(s.list.metrics(), rate)
}

// Sides implements Sided.
func (s *limit) Sides(c *cluster.Cluster) []cluster.Side {
	memory := cluster.Side{
		Name: SideMemory, Config: s.server.Config, Group: dataset.HostGroup, Processes: []*env.Process{s.server.Process},
	}
	// The other sides are those of listFull.
	return []cluster.Side{c.Sides()[0], memory}
}

// Prepare implements Scenario. The answer is that of the host.
func (s *limit) Prepare(ctx context.Context, c *cluster.Cluster) error {
	host, err := c.Side(cluster.SideHost)
	if err != nil {
		return err
	}
	with, err := client.New(host.Config)
	if err != nil {
		return err
	}
	defer with.Close()
	answer, check, err := s.list.send(ctx, with, c, host)
	if err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	if s.server, err = memserver.Start(ctx, c.Env, answer.Body); err != nil {
		return err
	}
	s.clients, err = newClients(s.Sides(c))
	return err
}

// Round implements Scenario.
func (s *limit) Round(ctx context.Context, c *cluster.Cluster, side cluster.Side) (Sample, error) {
	got, err := fullPace().repeat(ctx, side, func(ctx context.Context, _ int) (client.Answer, func() error, error) {
		return s.list.send(ctx, s.clients[side.Name], c, side)
	})
	if err != nil {
		return Sample{}, err
	}
	sample := Sample{Metrics: map[string]float64{}}
	s.list.record(sample, got)
	sample.Metrics[s.list.name+".rate"] = float64(got.bytes) / megabyte / got.median()
	return sample, nil
}

// Close implements Scenario.
func (s *limit) Close(context.Context) error {
	s.clients.close()
	if s.server == nil {
		return nil
	}
	return s.server.Close()
}
