// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"
	"maps"
	"sync"

	"k8s.io/component-base/metrics"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// Metrics counts what the gate and WithTrust refuse. The zero value is not usable; a nil Metrics counts nothing.
//
//	Name                                  Type     Labels       Stability
//	annex_serving_refused_requests_total  counter  group, mode  ALPHA
type Metrics struct {
	lock   sync.Mutex
	counts map[refusals]uint64
}

// refusals identifies one series.
type refusals struct {
	group string
	mode  v1alpha1.ServingMode
}

// NewMetrics returns counters that stand at zero and are not registered.
func NewMetrics() *Metrics {
	return &Metrics{counts: map[refusals]uint64{}}
}

// Name, Labels and Help of the one metric, for the reference page.
const (
	RefusedName = "annex_serving_refused_requests_total"
	RefusedHelp = "Requests for resources of adopted groups that the serving gate refused, by group and by the mode that it was in. " +
		"The mode Starting, with an empty group, is the time before the server has read its AnnexedGroups and definitions; " +
		"Unknown, with an empty group, is for groups that the cluster routes here and of which the server has neither; " +
		"Untrusting, with an empty group, counts requests of every kind before the server knows whom the cluster trusts."
)

// RefusedLabels are the labels of the metric.
func RefusedLabels() []string { return []string{"group", "mode"} }

// Register publishes the metrics, see the Register of the storage metrics.
func (m *Metrics) Register(register func(metrics.StableCollector) error) error {
	desc := metrics.NewDesc(RefusedName, RefusedHelp, RefusedLabels(), nil, metrics.ALPHA, "")
	if err := register(&collector{source: m, desc: desc}); err != nil {
		return fmt.Errorf("registering serving metrics: %w", err)
	}
	return nil
}

// refused counts one request. Of a group that is not known the name is anything
// that a client asks for, so it is left out.
func (m *Metrics) refused(name string, mode v1alpha1.ServingMode) {
	if m == nil {
		return
	}
	if mode == starting || mode == unknown {
		name = ""
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.counts[refusals{name, mode}]++
}

func (m *Metrics) snapshot() map[refusals]uint64 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return maps.Clone(m.counts)
}

var _ metrics.StableCollector = &collector{}

type collector struct {
	metrics.BaseStableCollector

	source *Metrics
	desc   *metrics.Desc
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- c.desc
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	for series, n := range c.source.snapshot() {
		ch <- metrics.NewLazyConstMetric(c.desc, metrics.CounterValue, float64(n), series.group, string(series.mode))
	}
}
