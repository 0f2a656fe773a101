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
}

// Description tells what one metric means.
type Description struct {
	// Name and Labels identify its series.
	Name   string
	Labels []string
	// Help is one sentence.
	Help string
}

func (d Description) desc() *metrics.Desc {
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

// Descriptions lists the metrics of this package for the reference page. All are counters of stability ALPHA.
func Descriptions() []Description {
	return []Description{requestsDescription(), listedDescription()}
}

func newCollector(source *Metrics) *collector {
	return &collector{source: source, requests: requestsDescription().desc(), listed: listedDescription().desc()}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- c.requests
	ch <- c.listed
}

// CollectWithStability implements metrics.StableCollector. Series that stand at
// zero are left out.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
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
