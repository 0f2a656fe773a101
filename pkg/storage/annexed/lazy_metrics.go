// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
)

// cacheGauge is what is known of the watch caches of one storage.
type cacheGauge struct {
	resource schema.GroupVersionResource
	// caches is their number.
	caches atomic.Int64
	// fill is how long the last one that was filled took, in nanoseconds. It is 0 before.
	fill atomic.Int64
}

// opened counts a cache until closed is called, and takes the time until it is filled, for
// which wait waits. It gives that up with ctx.
func (g *cacheGauge) opened(ctx context.Context, wait func(context.Context) error) (closed func()) {
	g.caches.Add(1)
	began := time.Now()
	go func() {
		if wait(ctx) == nil {
			g.fill.Store(int64(time.Since(began)))
		}
	}()
	return sync.OnceFunc(func() { g.caches.Add(-1) })
}

// showCaches returns a gauge that is visible until hide is called.
func (m *Metrics) showCaches(resource schema.GroupResource, version string) (gauge *cacheGauge, hide func()) {
	gauge = &cacheGauge{resource: resource.WithVersion(version)}
	if m == nil {
		return gauge, func() {}
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.caches[gauge] = struct{}{}
	return gauge, func() {
		m.lock.Lock()
		defer m.lock.Unlock()
		delete(m.caches, gauge)
	}
}

// CacheState is what there is of one version of a resource in memory.
type CacheState struct {
	// Caches is the number of watch caches: 0 of a version that nobody has needed one of, 2
	// while one replaces the other.
	Caches int
	// Fill is how long the slowest of the last ones took to be filled, or 0.
	Fill time.Duration
}

// Caches returns the state of every version that has an open storage. In a nil Metrics there is none.
func (m *Metrics) Caches() map[schema.GroupVersionResource]CacheState {
	states := map[schema.GroupVersionResource]CacheState{}
	if m == nil {
		return states
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	for gauge := range m.caches {
		state := states[gauge.resource]
		state.Caches += int(gauge.caches.Load())
		state.Fill = max(state.Fill, time.Duration(gauge.fill.Load()))
		states[gauge.resource] = state
	}
	return states
}

// cachesDescription describes the number of watch caches.
func cachesDescription() Description {
	return Description{
		Name:   "annex_watch_caches",
		Labels: []string{"group", "resource", "version"},
		Help:   "Watch caches in memory: 0 of a version of a custom resource that nobody has listed or watched since the server started or its definition changed, 2 while one replaces the other.",
		Gauge:  true,
	}
}

// fillDescription describes how long caches take to be filled.
func fillDescription() Description {
	return Description{
		Name:   "annex_watch_cache_fill_duration_seconds",
		Labels: []string{"group", "resource", "version"},
		Help:   "How long the last watch cache of a version took from its start until it was filled.",
		Gauge:  true,
	}
}

func (c *collector) collectCaches(ch chan<- metrics.Metric) {
	for resource, state := range c.source.Caches() {
		labels := []string{resource.Group, resource.Resource, resource.Version}
		ch <- metrics.NewLazyConstMetric(c.caches, metrics.GaugeValue, float64(state.Caches), labels...)
		if state.Fill > 0 {
			ch <- metrics.NewLazyConstMetric(c.fill, metrics.GaugeValue, state.Fill.Seconds(), labels...)
		}
	}
}
