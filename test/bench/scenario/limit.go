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

// limit is the physical limit of a LIST: a server that has nothing to do but to send the
// same bytes over TLS. Nothing that makes the answer can be faster.
type limit struct{ server *memserver.Server }

// rateOf is the throughput of a list.
func rateOf(list fullList) Metric {
	return Metric{Name: list.name + ".rate", Title: list.title + ", throughput", Unit: "MB/s", Better: Higher}
}

// start starts the server with the answer of the host to a list.
func (l *limit) start(ctx context.Context, c *cluster.Cluster, list fullList) error {
	host, err := c.Side(cluster.SideHost)
	if err != nil {
		return err
	}
	with, err := client.New(host.Config)
	if err != nil {
		return err
	}
	defer with.Close()
	answer, check, err := list.send(ctx, with, c, host)
	if err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	l.server, err = memserver.Start(ctx, c.Env, answer.Body)
	return err
}

// side is the way to the server once it is started.
func (l *limit) side() cluster.Side {
	return cluster.Side{
		Name: SideMemory, Config: l.server.Config, Group: dataset.HostGroup, Processes: []*env.Process{l.server.Process},
	}
}

func (l *limit) close() error {
	if l.server == nil {
		return nil
	}
	return l.server.Close()
}
