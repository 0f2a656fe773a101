// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"fmt"

	"k8s.io/component-base/metrics"
)

// Name and Help of the one metric, for the reference page.
const (
	FullName = "annex_etcd_full"
	FullHelp = "1 while an etcd has raised its space alarm and refuses writes, else 0, by its servers. " +
		"Reads, and deletions of objects without finalizers, go on meanwhile. There is no series before the etcd has answered once."
)

// FullLabels are the labels of the metric.
func FullLabels() []string { return []string{"servers"} }

// Register publishes the metric.
func (m *Monitor) Register(register func(metrics.StableCollector) error) error {
	desc := metrics.NewDesc(FullName, FullHelp, FullLabels(), nil, metrics.ALPHA, "")
	if err := register(&collector{source: m, desc: desc}); err != nil {
		return fmt.Errorf("registering metrics of etcd's space: %w", err)
	}
	return nil
}

var _ metrics.StableCollector = &collector{}

type collector struct {
	metrics.BaseStableCollector

	source *Monitor
	desc   *metrics.Desc
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- c.desc }

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	for servers, full := range c.source.states() {
		value := 0.0
		if full {
			value = 1
		}
		ch <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, value, servers)
	}
}
