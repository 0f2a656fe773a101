// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"k8s.io/component-base/metrics"
)

var _ metrics.StableCollector = &collector{}

// collector shows the counters of a Metrics to a registry. It reads them when
// it is asked, so that they exist once and can be read without a registry.
type collector struct {
	metrics.BaseStableCollector

	source   *Metrics
	requests *metrics.Desc
	listed   *metrics.Desc
	entries  *metrics.Desc
	bytes    *metrics.Desc
	caches   *metrics.Desc
	fill     *metrics.Desc
}

// Description tells what one metric means.
type Description struct {
	// Name and Labels identify its series.
	Name   string
	Labels []string
	// Help is one sentence.
	Help string
	// Gauge says that it is not a counter.
	Gauge bool
}

// Desc declares the metric, of stability ALPHA, to a collector.
func (d Description) Desc() *metrics.Desc {
	return metrics.NewDesc(d.Name, d.Help, d.Labels, nil, metrics.ALPHA, "")
}

// requestsDescription describes the count of requests.
func requestsDescription() Description {
	return Description{
		Name:   "annex_storage_etcd_requests_total",
		Labels: []string{"group", "resource", "caller", "operation"},
		Help:   "Requests to etcd by resource, by who caused them and by operation.",
	}
}

// listedDescription describes the count of listed objects.
func listedDescription() Description {
	return Description{
		Name:   "annex_storage_etcd_listed_objects_total",
		Labels: []string{"group", "resource", "caller"},
		Help:   "Objects returned by lists that etcd answered, by resource and by who caused them.",
	}
}

// entriesDescription describes the size of an index in objects.
func entriesDescription() Description {
	return Description{
		Name:   "annex_index_entries",
		Labels: []string{"group", "resource", "version", "index"},
		Help:   "Objects in an index of the watch cache, estimated from a sample of the objects; f:<path> is an index of a field, l:<key> of a label.",
		Gauge:  true,
	}
}

// bytesDescription describes the size of an index in memory.
func bytesDescription() Description {
	return Description{
		Name:   "annex_index_bytes",
		Labels: []string{"group", "resource", "version", "index"},
		Help:   "Memory of an index of the watch cache beside the objects, estimated from the numbers of objects and of different values in a sample.",
		Gauge:  true,
	}
}

// Descriptions lists the metrics of this package for the reference page. All are of stability ALPHA.
func Descriptions() []Description {
	return []Description{requestsDescription(), listedDescription(), entriesDescription(), bytesDescription(), cachesDescription(), fillDescription()}
}

func newCollector(source *Metrics) *collector {
	return &collector{
		source: source, requests: requestsDescription().Desc(), listed: listedDescription().Desc(),
		entries: entriesDescription().Desc(), bytes: bytesDescription().Desc(), caches: cachesDescription().Desc(), fill: fillDescription().Desc(),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- c.requests
	ch <- c.listed
	ch <- c.entries
	ch <- c.bytes
	ch <- c.caches
	ch <- c.fill
}

// CollectWithStability implements metrics.StableCollector. Counters that stand at
// zero are left out.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	c.collectCaches(ch)
	for name, size := range c.source.indexSizes() {
		labels := []string{name.resource.Group, name.resource.Resource, name.resource.Version, name.index}
		ch <- metrics.NewLazyConstMetric(c.entries, metrics.GaugeValue, float64(size.entries), labels...)
		ch <- metrics.NewLazyConstMetric(c.bytes, metrics.GaugeValue, float64(size.bytes), labels...)
	}
	for resource, counts := range c.source.all() {
		for request, n := range counts.snapshot() {
			ch <- metrics.NewLazyConstMetric(c.requests, metrics.CounterValue, float64(n),
				resource.Group, resource.Resource, string(request.Caller), string(request.Operation))
		}
		for caller, n := range counts.listed {
			if value := n.Load(); value > 0 {
				ch <- metrics.NewLazyConstMetric(c.listed, metrics.CounterValue, float64(value),
					resource.Group, resource.Resource, string(caller))
			}
		}
	}
}
