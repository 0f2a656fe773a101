// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
	"github.com/kubeannex/annex/test/bench/report"
)

const (
	// mostWatchers is the size of the large cluster that is modelled.
	mostWatchers = 4000
	// fanoutUpdates is how many updates a round has with watchers, and as many without:
	// 1,250 with watchers in the five rounds that are measured. Where every watch looks
	// at every event, one takes several milliseconds of CPU time.
	fanoutUpdates, smokeFanoutUpdates = 250, 100
	// eventTimeout bounds the wait for the events of updates that were answered.
	eventTimeout = time.Minute
	// openTimeout bounds the opening of all watches.
	openTimeout = 2 * time.Minute
)

// watchFanout measures updates of endpoints while the agent of every node watches
// the endpoints of its node: each update is one event for one of them.
type watchFanout struct {
	// updates is how many are sent with watchers, and as many without.
	updates  int
	watchers int
	// next is the number of the next update.
	next   int
	agents *agents
	// connected are the agents by the name of the side. Connections last over all rounds.
	connected map[string][]*client.Client
	own       *ownEndpoints
	// sides are those on which own endpoints are created: one of each group.
	sides []cluster.Side
}

var (
	_ Scenario = &watchFanout{}
	_ Titled   = &watchFanout{}
)

func newWatchFanout(smoke bool) *watchFanout {
	if smoke {
		return &watchFanout{updates: smokeFanoutUpdates}
	}
	return &watchFanout{updates: fanoutUpdates}
}

// Name implements Scenario.
func (s *watchFanout) Name() string { return "watch-fanout" }

// Title implements Titled.
func (s *watchFanout) Title() string {
	return fmt.Sprintf("Watch fan-out: %d watchers, each of one node", s.watchers)
}

// Metrics implements Scenario.
func (s *watchFanout) Metrics() []Metric {
	updates := fmt.Sprintf("%d updates", s.updates)
	return []Metric{
		{Name: "cpu.fanout", Title: updates + ", CPU over that without watchers", Unit: report.Seconds, Better: Lower},
		{Name: "cpu.with", Title: updates + ", CPU over idle", Unit: report.Seconds, Better: Lower},
		{Name: "cpu.without", Title: updates + " without watchers, CPU over idle", Unit: report.Seconds, Better: Lower},
		{Name: "event.p50", Title: "from sending an update to its event, p50", Unit: report.Seconds, Better: Lower},
		{Name: "event.p99", Title: "from sending an update to its event, p99", Unit: report.Seconds, Better: Lower},
		{Name: "rate", Title: "updates, throughput", Unit: report.RequestsPerSecond, Better: Higher},
		{Name: "rate.without", Title: "updates without watchers, throughput", Unit: report.RequestsPerSecond, Better: Higher},
		{Name: "ended", Title: "watches that the server has ended", Unit: "", Better: Lower},
	}
}

// Prepare implements Scenario.
func (s *watchFanout) Prepare(ctx context.Context, c *cluster.Cluster) error {
	s.watchers = min(mostWatchers, c.Sizes.Nodes)
	var err error
	if s.agents, err = newAgents(ctx, c); err != nil {
		return err
	}
	s.connected = map[string][]*client.Client{}
	for _, side := range c.Sides() {
		for range s.watchers {
			agent, err := s.agents.connect(side)
			if err != nil {
				return err
			}
			s.connected[side.Name] = append(s.connected[side.Name], agent)
		}
	}
	if s.own, err = newOwnEndpoints(c, s.watchers); err != nil {
		return err
	}
	for _, name := range []string{cluster.SideHost, cluster.SideAnnex} {
		side, err := c.Side(name)
		if err != nil {
			return err
		}
		s.sides = append(s.sides, side)
		if err := s.own.create(ctx, side); err != nil {
			return err
		}
	}
	return nil
}

// Round implements Scenario.
func (s *watchFanout) Round(ctx context.Context, c *cluster.Cluster, side cluster.Side) (Sample, error) {
	without, err := s.run(ctx, c, side, nil)
	if err != nil {
		return Sample{}, fmt.Errorf("without watchers: %w", err)
	}
	watching, err := s.open(ctx, c, side)
	if err != nil {
		return Sample{}, err
	}
	with, err := s.run(watching.ctx, c, side, watching)
	// What ended the watches comes first: it also ended the updates.
	if err := errors.Join(watching.close(), err); err != nil {
		return Sample{}, err
	}
	return Sample{Metrics: map[string]float64{
		"cpu.fanout": with.cpu - without.cpu, "cpu.with": with.cpu, "cpu.without": without.cpu,
		"event.p50": with.latencies.Median, "event.p99": with.latencies.P99,
		"rate": with.rate, "rate.without": without.rate, "ended": float64(watching.ended.Load()),
	}}, settle(ctx, side)
}

// fanned is what updates cost.
type fanned struct {
	// cpu is the CPU time of the servers over idle, in seconds.
	cpu float64
	// rate is answered updates a second.
	rate float64
	// latencies are those of events, in seconds.
	latencies measure.Summary
}

// run sends updates and, with watchers, waits for all their events.
func (s *watchFanout) run(ctx context.Context, c *cluster.Cluster, side cluster.Side, watching *watching) (fanned, error) {
	u := newUpdates(s.next, s.updates, s.watchers)
	s.next += s.updates
	pids := side.PIDs()
	before, err := measure.Processes(pids...)
	if err != nil {
		return fanned{}, err
	}
	if watching != nil {
		watching.expected.Store(u)
	}
	start := time.Now()
	took, err := s.own.update(ctx, side, u)
	if err == nil && watching != nil {
		err = u.wait(ctx)
	}
	if err != nil {
		return fanned{}, err
	}
	after, err := measure.Processes(pids...)
	if err != nil {
		return fanned{}, err
	}
	idle := c.Idle[side.Name] * time.Since(start).Seconds()
	return fanned{
		cpu: after.Since(before).CPU.Seconds() - idle, rate: float64(s.updates) / took.Seconds(), latencies: u.latencies(),
	}, nil
}

// watching are open watches, one of every node, and who reads them.
type watching struct {
	// ctx is done when a watch has failed.
	ctx     context.Context
	end     context.CancelFunc
	readers *errgroup.Group
	// expected are the updates of which events may come.
	expected atomic.Pointer[updates]
	// ended is how many watches the server has ended.
	ended atomic.Int64
}

// open opens all watches from now on, without initial events.
func (s *watchFanout) open(ctx context.Context, c *cluster.Cluster, side cluster.Side) (*watching, error) {
	w := &watching{}
	ctx, w.end = context.WithCancel(ctx)
	w.readers, w.ctx = errgroup.WithContext(ctx)
	late := time.AfterFunc(openTimeout, w.end)
	defer late.Stop()
	connected := s.connected[side.Name]
	version, err := recentVersion(w.ctx, connected[0], side)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	opened := make([]*client.Watch, len(connected))
	err = each(w.ctx, len(connected), openers, func(_ context.Context, node int) error {
		// Not the context of the opening: that ends now.
		var err error
		opened[node], err = connected[node].Watch(w.ctx, watchURL(c, side, node, version))
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening watches: %w", err), w.close())
	}
	for node, watch := range opened {
		w.readers.Go(func() error {
			return w.read(ctx, node, watch, version, func(version string) (*client.Watch, error) {
				return connected[node].Watch(w.ctx, watchURL(c, side, node, version))
			})
		})
	}
	return w, settle(w.ctx, side)
}

// read checks the events of one node until the watches are closed. A watch that the
// server ends is opened again where it ended, as informers do: an API server ends
// those of clients that it finds too slow, and with it nothing may be lost or come twice.
func (w *watching) read(ctx context.Context, node int, watch *client.Watch, version string, again func(version string) (*client.Watch, error)) error {
	for {
		event, err := watch.Next()
		if errors.Is(err, io.EOF) && ctx.Err() == nil {
			w.ended.Add(1)
			if watch, err = again(version); err == nil {
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the watch of %s: %w", dataset.NodeName(node), err)
		}
		version = event.Text("metadata", "resourceVersion")
		if event.Type == "BOOKMARK" {
			continue
		}
		expected := w.expected.Load()
		if expected == nil {
			return fmt.Errorf("the watch of %s has a %s before any update", dataset.NodeName(node), event.Type)
		}
		if err := expected.event(node, event); err != nil {
			return err
		}
	}
}

// close ends all watches and returns why one has ended before.
func (w *watching) close() error {
	w.end()
	return w.readers.Wait()
}

// Close implements Scenario.
func (s *watchFanout) Close(ctx context.Context) error {
	for _, connected := range s.connected {
		for _, agent := range connected {
			agent.Close()
		}
	}
	var problems []error
	for _, side := range s.sides {
		problems = append(problems, s.own.remove(ctx, side))
	}
	if s.own != nil {
		s.own.close()
	}
	return errors.Join(append(problems, s.agents.close(ctx))...)
}
