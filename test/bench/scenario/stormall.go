// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/measure"
	"github.com/kubeannex/annex/test/bench/report"
)

const (
	// allCutoff is how long the agents of all nodes get. A kube-apiserver looks at all objects
	// for each of them, which takes it minutes.
	allCutoff, smokeAllCutoff = 20 * time.Second, 5 * time.Second
	// againAfter is when an agent that got no answer asks again.
	againAfter = time.Second
)

// stormAll is a storm of the agents of all nodes of the large cluster that is modelled. It
// is cut off after some time and played once: what is compared is how many agents a side gets done.
type stormAll struct {
	storm  *storm
	cutoff time.Duration
}

var (
	_ Scenario = &stormAll{}
	_ Titled   = &stormAll{}
	_ Paced    = &stormAll{}
)

func newStormAll(smoke bool) *stormAll {
	s := &stormAll{storm: &storm{}, cutoff: allCutoff}
	if smoke {
		s.cutoff = smokeAllCutoff
	}
	return s
}

// Name implements Scenario.
func (s *stormAll) Name() string { return "restart-all" }

// Title implements Titled.
func (s *stormAll) Title() string {
	return fmt.Sprintf("Restart of %d agents at once, LIST and WATCH, measured once and cut off after %s", s.storm.count, s.cutoff)
}

// Rounds implements Paced.
func (s *stormAll) Rounds(int) (measured, warmup int) { return 1, 0 }

// Metrics implements Scenario.
func (s *stormAll) Metrics() []Metric {
	return []Metric{
		{Name: "synced", Title: "agents that are synced", Better: Higher},
		{Name: "time", Title: "until all are synced, or the end", Unit: report.Seconds, Better: Lower},
		{Name: "rate", Title: "synced", Unit: "agents/s", Better: Higher},
		{Name: "peak", Title: "peak RSS of the API servers", Unit: report.Bytes, Better: Lower},
		{Name: "bystander", Title: "p99 of GET of a ConfigMap on the host meanwhile", Unit: report.Seconds, Better: Lower},
		{Name: "refused", Title: "such GETs put off (429)", Better: Lower},
		{Name: "throttled", Title: "requests put off (429)", Better: Lower},
		{Name: "failed", Title: "requests without an answer", Better: Lower},
	}
}

// Prepare implements Scenario.
func (s *stormAll) Prepare(ctx context.Context, c *cluster.Cluster) error {
	s.storm.count = min(mostWatchers, c.Sizes.Nodes)
	return s.storm.Prepare(ctx, c)
}

// synced is what the agents of a storm have done.
type synced struct {
	agents, failed atomic.Int64
	// last is when the last of them was done, in nanoseconds after the start.
	last atomic.Int64
}

// Round implements Scenario.
func (s *stormAll) Round(ctx context.Context, c *cluster.Cluster, side cluster.Side) (Sample, error) {
	servers := apiServers(c, side)
	if err := measure.ResetPeak(servers...); err != nil {
		return Sample{}, err
	}
	bystander, err := newBystander(s.storm.bystander)
	if err != nil {
		return Sample{}, err
	}
	defer bystander.close()
	waiting, err := s.storm.restart(side)
	if err != nil {
		return Sample{}, err
	}
	defer closeAll(waiting)
	s.storm.agents.throttled.Store(0)
	stop := bystander.start(ctx)
	done, err := s.sync(ctx, c, side, waiting)
	if err := errors.Join(err, stop()); err != nil {
		return Sample{}, err
	}
	usage, err := measure.Processes(servers...)
	if err != nil {
		return Sample{}, err
	}
	took := s.cutoff
	if int(done.agents.Load()) == s.storm.count {
		took = time.Duration(done.last.Load())
	}
	closeAll(waiting)
	return Sample{Metrics: map[string]float64{
		"synced": float64(done.agents.Load()), "time": took.Seconds(), "rate": float64(done.agents.Load()) / took.Seconds(),
		"peak": float64(usage.Peak), "bystander": bystander.latencies.Summary().P99, "refused": float64(bystander.throttled.Load()),
		"throttled": float64(s.storm.agents.throttled.Load()), "failed": float64(done.failed.Load()),
	}}, settle(ctx, side)
}

// sync lets all agents start at the same moment, and returns when all are synced or the time is over. An
// agent whose watch ends is not synced any more, and begins again.
func (s *stormAll) sync(ctx context.Context, c *cluster.Cluster, side cluster.Side, waiting []*restarted) (*synced, error) {
	limited, cancel := context.WithTimeout(ctx, s.cutoff)
	defer cancel()
	done, start := &synced{}, time.Now()
	err := each(ctx, len(waiting), len(waiting), func(_ context.Context, i int) error {
		for {
			// Not the context of each: watches have to live until the last is synced.
			watch, err := listAndWatch(limited, waiting[i], c, side)
			if err == nil {
				if done.agents.Add(1) == int64(len(waiting)) {
					done.last.Store(int64(time.Since(start)))
					cancel()
				}
				err = watch.Hold()
				if limited.Err() == nil {
					done.agents.Add(-1)
				}
			}
			switch {
			case errors.Is(err, errWrongAnswer):
				cancel()
				return err
			case limited.Err() != nil:
				return ctx.Err()
			}
			done.failed.Add(1)
			select {
			case <-time.After(againAfter):
			case <-limited.Done():
				return ctx.Err()
			}
		}
	})
	return done, err
}

// Close implements Scenario.
func (s *stormAll) Close(ctx context.Context) error { return s.storm.Close(ctx) }
