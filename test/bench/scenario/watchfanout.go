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
	// 5,000 with watchers in the five rounds that are measured. Where every watch looks
	// at every event, one takes several milliseconds of CPU time.
	fanoutUpdates, smokeFanoutUpdates = 1000, 100
	// eventTimeout bounds the wait for the events of updates that were answered.
	eventTimeout = time.Minute
	// openTimeout bounds the opening of all watches.
	openTimeout = 2 * time.Minute
)

// watchFanout measures updates of endpoints while the agent of every node watches
// the endpoints of its node: each update is one event for one of them.
//
// To open thousands of watches takes longer than a round. So updates are measured on all
// sides in turn while nobody watches, then all watches are opened, and stay open
// while updates are measured again. The agents that reach annex directly and those
// that reach it through kube-apiserver are of different nodes, and so get no events of each other's.
type watchFanout struct {
	// updates is how many are sent in a round with watchers, and in one without.
	updates  int
	watchers int
	// rounds is how often updates are measured, after one round that is thrown away.
	rounds int
	agents *agents
	// fanouts are those of each side, by its name.
	fanouts map[string]*fanout
	// idle is what servers use without watches and updates. What open watches cost besides is counted.
	idle map[string]float64
}

// fanout is what a side has of watchFanout.
type fanout struct {
	side cluster.Side
	own  *ownEndpoints
	// next is the number of the next update.
	next int
	// without is what updates cost without watchers, round by round. Those with watchers
	// take it from its front.
	without   []fanned
	connected []*client.Client
	watching  *watching
}

var (
	_ Scenario = &watchFanout{}
	_ Titled   = &watchFanout{}
	_ Paced    = &watchFanout{}
)

func newWatchFanout(settings Settings) *watchFanout {
	s := &watchFanout{updates: fanoutUpdates, rounds: settings.Rounds, fanouts: map[string]*fanout{}}
	if settings.Smoke {
		s.updates = smokeFanoutUpdates
	}
	return s
}

// Rounds implements Paced.
func (s *watchFanout) Rounds(int) (measured, warmup int) { return s.rounds, 1 }

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
		{Name: "cpu.fanout", Title: updates + ", CPU over that without watchers", Unit: report.Seconds, Better: Lower, Difference: true},
		{Name: "cpu.with", Title: updates + ", CPU over idle with watchers", Unit: report.Seconds, Better: Lower},
		{Name: "cpu.without", Title: updates + " without watchers, CPU over idle", Unit: report.Seconds, Better: Lower},
		{Name: "event.p50", Title: "from sending an update to its event, p50", Unit: report.Seconds, Better: Lower},
		{Name: "event.p99", Title: "from sending an update to its event, p99", Unit: report.Seconds, Better: Lower},
		{Name: "rate", Title: "updates, throughput", Unit: report.RequestsPerSecond, Better: Higher},
		{Name: "rate.without", Title: "updates without watchers, throughput", Unit: report.RequestsPerSecond, Better: Higher},
		{Name: "ended", Title: "watches that the server has ended", Unit: "", Better: Lower},
	}
}

// Prepare implements Scenario. It measures what is measured without watchers.
func (s *watchFanout) Prepare(ctx context.Context, c *cluster.Cluster) error {
	s.watchers, s.idle = min(mostWatchers, c.Sizes.Nodes), c.Idle
	var err error
	if s.agents, err = newAgents(ctx, c); err != nil {
		return err
	}
	for _, side := range c.Sides() {
		f := &fanout{side: side}
		s.fanouts[side.Name] = f
		if f.own, err = newOwnEndpoints(c, side, s.watchers, side.Name == cluster.SideAggregated); err != nil {
			return err
		}
	}
	if err := s.fanouts[cluster.SideAggregated].own.create(ctx); err != nil {
		return err
	}
	if err := s.runWithout(ctx, c); err != nil {
		return err
	}
	for _, side := range c.Sides() {
		start := time.Now()
		if err := s.open(ctx, c, s.fanouts[side.Name]); err != nil {
			return fmt.Errorf("on %s: %w", side.Name, err)
		}
		c.Progress("%s: %d watches on %s are open after %.1f s", s.Name(), s.watchers, side.Name, time.Since(start).Seconds())
	}
	return settle(ctx, c.Sides()...)
}

// runWithout measures the updates without watchers, as the runner does those with them.
func (s *watchFanout) runWithout(ctx context.Context, c *cluster.Cluster) error {
	for round := range 1 + s.rounds {
		c.Progress("%s: without watchers, %s", s.Name(), roundName(round, 1, s.rounds))
		for _, side := range inOrder(c.Sides(), round, 0) {
			if err := settle(ctx, c.Sides()...); err != nil {
				return err
			}
			f := s.fanouts[side.Name]
			without, err := s.run(ctx, f)
			if err != nil {
				return fmt.Errorf("updating without watchers on %s: %w", side.Name, err)
			}
			f.without = append(f.without, without)
		}
	}
	return nil
}

// Round implements Scenario. Rounds that are played to be profiled are compared with the last one without watchers.
func (s *watchFanout) Round(_ context.Context, _ *cluster.Cluster, side cluster.Side) (Sample, error) {
	f := s.fanouts[side.Name]
	without, ended := f.without[0], f.watching.ended.Load()
	f.without = f.without[min(1, len(f.without)-1):]
	with, err := s.run(f.watching.ctx, f)
	if err != nil {
		// What ended the watches comes first: it also ended the updates.
		return Sample{}, errors.Join(f.watching.close(), err)
	}
	return Sample{Metrics: map[string]float64{
		// Below 0 where watchers cost less than what updates cost one time and the next.
		"cpu.fanout": with.cpu - without.cpu, "cpu.with": with.cpu, "cpu.without": without.cpu,
		"event.p50": with.latencies.Median, "event.p99": with.latencies.P99,
		"rate": with.rate, "rate.without": without.rate, "ended": float64(f.watching.ended.Load() - ended),
	}}, nil
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
func (s *watchFanout) run(ctx context.Context, f *fanout) (fanned, error) {
	u := newUpdates(f.next, s.updates, s.watchers, f.own.offset)
	f.next += s.updates
	pids := f.side.PIDs()
	before, err := measure.Processes(pids...)
	if err != nil {
		return fanned{}, err
	}
	if f.watching != nil {
		f.watching.expected.Store(u)
	}
	start := time.Now()
	took, err := f.own.update(ctx, u)
	if err == nil && f.watching != nil {
		err = u.wait(ctx)
	}
	if err != nil {
		return fanned{}, err
	}
	after, err := measure.Processes(pids...)
	if err != nil {
		return fanned{}, err
	}
	alone := s.idle[f.side.Name] * time.Since(start).Seconds()
	return fanned{
		cpu: after.Since(before).CPU.Seconds() - alone, rate: float64(s.updates) / took.Seconds(), latencies: u.latencies(),
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

// open opens all watches of a side from now on, without initial events.
func (s *watchFanout) open(ctx context.Context, c *cluster.Cluster, f *fanout) error {
	for range s.watchers {
		agent, err := s.agents.connect(f.side)
		if err != nil {
			return err
		}
		f.connected = append(f.connected, agent)
	}
	w := &watching{}
	f.watching = w
	ctx, w.end = context.WithCancel(ctx)
	w.readers, w.ctx = errgroup.WithContext(ctx)
	late := time.AfterFunc(openTimeout, w.end)
	defer late.Stop()
	version, err := recentVersion(w.ctx, f.connected[0], f.side)
	if err != nil {
		return err
	}
	opened := make([]*client.Watch, len(f.connected))
	err = each(w.ctx, len(opened), openers, func(_ context.Context, i int) error {
		// Not the context of the opening: that ends now.
		var err error
		opened[i], err = f.connected[i].Watch(w.ctx, watchURL(c, f.side, f.own.offset+i, version))
		return err
	})
	if err != nil {
		return fmt.Errorf("opening watches: %w", err)
	}
	for i, watch := range opened {
		w.readers.Go(func() error {
			return w.read(ctx, f.own.offset+i, watch, version, func(version string) (*client.Watch, error) {
				return f.connected[i].Watch(w.ctx, watchURL(c, f.side, f.own.offset+i, version))
			})
		})
	}
	return settle(w.ctx, f.side)
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
	var problems []error
	for _, f := range s.fanouts {
		if f.watching != nil {
			problems = append(problems, f.watching.close())
		}
		for _, agent := range f.connected {
			agent.Close()
		}
		if f.own != nil {
			problems = append(problems, f.own.remove(ctx))
			f.own.close()
		}
	}
	return errors.Join(append(problems, s.agents.close(ctx))...)
}
