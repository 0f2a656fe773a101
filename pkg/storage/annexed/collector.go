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

func newCollector(source *Metrics) *collector {
	return &collector{
		source: source,
		requests: metrics.NewDesc("annex_storage_etcd_requests_total",
			"Requests to etcd by resource, by who caused them and by operation.",
			[]string{"group", "resource", "caller", "operation"}, nil, metrics.ALPHA, ""),
		listed: metrics.NewDesc("annex_storage_etcd_listed_objects_total",
			"Objects returned by lists that etcd answered, by resource and by who caused them.",
			[]string{"group", "resource", "caller"}, nil, metrics.ALPHA, ""),
	}
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
