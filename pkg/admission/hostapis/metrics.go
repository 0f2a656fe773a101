// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostapis

import (
	"fmt"

	"k8s.io/component-base/metrics"
)

// Name, Labels and Help of the one metric, for the reference page.
const (
	DisabledName = "annex_disabled_plugins"
	DisabledHelp = "1 for an admission plug-in, or PriorityAndFairness, that is switched off because of the cluster, by the reason: " +
		"with MissingAPI the cluster does not serve the objects that it lives on. Instead of PriorityAndFairness there is the limit of requests in flight then."
)

// missingAPI is the reason that is shown.
const missingAPI = "MissingAPI"

// DisabledLabels are the labels of the metric.
func DisabledLabels() []string { return []string{"plugin", "reason"} }

// Register publishes the metric by a function such as legacyregistry.CustomRegister.
func (a *Availability) Register(register func(metrics.StableCollector) error) error {
	desc := metrics.NewDesc(DisabledName, DisabledHelp, DisabledLabels(), nil, metrics.ALPHA, "")
	if err := register(&collector{source: a, desc: desc}); err != nil {
		return fmt.Errorf("registering metrics of the cluster's APIs: %w", err)
	}
	return nil
}

var _ metrics.StableCollector = &collector{}

type collector struct {
	metrics.BaseStableCollector

	source *Availability
	desc   *metrics.Desc
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- c.desc }

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	for _, disabled := range c.source.Disabled() {
		ch <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, 1, disabled.Plugin, missingAPI)
	}
}
