// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// series identifies what is counted together. Every part takes few values: groups
// and resources are those of definitions that there are, indexes are declared, at
// most 8 for a resource.
type series struct {
	group, resource, verb string

	source      kubeannex.ListSource
	rule, index string
}

func (s series) clone() series {
	for _, text := range []*string{&s.group, &s.resource, &s.verb, &s.rule, &s.index} {
		*text = strings.Clone(*text)
	}
	return s
}

// counts are the numbers of one series or row.
type counts struct {
	reads, failed, scanned, returned, bytes atomic.Int64
}

// add counts one read.
func (c *counts) add(failed bool, scanned, returned, bytes int64) {
	c.reads.Add(1)
	if failed {
		c.failed.Add(1)
	}
	c.scanned.Add(scanned)
	c.returned.Add(returned)
	c.bytes.Add(bytes)
}

// moveTo takes everything away and adds it to others.
func (c *counts) moveTo(other *counts) {
	other.reads.Add(c.reads.Swap(0))
	other.failed.Add(c.failed.Swap(0))
	other.scanned.Add(c.scanned.Swap(0))
	other.returned.Add(c.returned.Swap(0))
	other.bytes.Add(c.bytes.Swap(0))
}

// counters are all series.
type counters struct {
	lock sync.RWMutex
	all  map[series]*counts
}

func newCounters() *counters {
	return &counters{all: map[series]*counts{}}
}

// of returns the numbers of a series. Those of a new one are kept if the resource is
// there still, which is asked under the lock that forget takes after it went.
func (c *counters) of(s series, exists func() bool) *counts {
	c.lock.RLock()
	found, ok := c.all[s]
	c.lock.RUnlock()
	if ok {
		return found
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if found, ok = c.all[s]; !ok {
		found = &counts{}
		if exists() {
			c.all[s.clone()] = found
		}
	}
	return found
}

// forget removes the series of a resource and its subresources that no version
// declares any more, which is asked under the lock.
func (c *counters) forget(resource schema.GroupResource, declared Declared) {
	c.lock.Lock()
	defer c.lock.Unlock()
	maps.DeleteFunc(c.all, func(s series, _ *counts) bool {
		return isGone(s.group, anyVersion, s.resource, resource, declared)
	})
}

// forgetIndexes removes the series of the indexes that a resource has no more, which is
// asked under the lock. What they had of metrics without the label index stays, as a
// counter does not sink, in a series without a rule that has no reads.
func (c *counters) forgetIndexes(resource schema.GroupResource, indexed Indexed) {
	c.lock.Lock()
	defer c.lock.Unlock()
	left := map[series]*counts{}
	maps.DeleteFunc(c.all, func(s series, n *counts) bool {
		main, _, _ := strings.Cut(s.resource, "/")
		if s.index == "" || s.group != resource.Group || main != resource.Resource || indexed(resource, s.index) {
			return false
		}
		s.rule, s.index = "", ""
		if left[s] == nil {
			left[s] = &counts{}
		}
		left[s].failed.Add(n.failed.Load())
		left[s].bytes.Add(n.bytes.Load())
		return true
	})
	for s, n := range left {
		if c.all[s] == nil {
			c.all[s] = &counts{}
		}
		n.moveTo(c.all[s])
	}
}

// isGone reports whether a resource, which may have a subresource, is of another one
// and not declared any more.
func isGone(group, version, resource string, of schema.GroupResource, declared Declared) bool {
	main, subresource, _ := strings.Cut(resource, "/")
	return group == of.Group && main == of.Resource && !declared(of.WithVersion(version), subresource)
}

func (c *counters) snapshot() map[series]*counts {
	c.lock.RLock()
	defer c.lock.RUnlock()
	return maps.Clone(c.all)
}

// metric is a Description with the way to its values.
type metric struct {
	annexed.Description

	// labels and value are nil for a number of the table.
	labels func(series) []string
	value  func(*counts) int64
	ofRows func(rows int, dropped int64) int64
}

func (m metric) kind() metrics.ValueType {
	if m.Gauge {
		return metrics.GaugeValue
	}
	return metrics.CounterValue
}

// allMetrics are the metrics of this package:
//
//	Name                               Type     Labels                                      Stability
//	annex_reads_total                  counter  group, resource, verb, source, rule, index  ALPHA
//	annex_reads_failed_total           counter  group, resource, verb, source               ALPHA
//	annex_read_scanned_objects_total   counter  group, resource, verb, source, index        ALPHA
//	annex_read_returned_objects_total  counter  group, resource, verb, source, index        ALPHA
//	annex_read_response_bytes_total    counter  group, resource, verb, source               ALPHA
//	annex_list_profile_rows            gauge                                                ALPHA
//	annex_list_profile_dropped_total   counter                                              ALPHA
func allMetrics() []metric {
	byIndex := []string{"group", "resource", "verb", "source", "index"}
	labelsByIndex := func(s series) []string { return []string{s.group, s.resource, s.verb, string(s.source), s.index} }
	bySource := []string{"group", "resource", "verb", "source"}
	labelsBySource := func(s series) []string { return []string{s.group, s.resource, s.verb, string(s.source)} }
	return []metric{{
		Description: annexed.Description{
			Name: "annex_reads_total", Labels: []string{"group", "resource", "verb", "source", "rule", "index"},
			Help: "Gets, lists and watches of custom resources, by what they were served from, the rule that decided about it and the index. " +
				"All three are empty for a read that was refused before anything was read.",
		},
		labels: func(s series) []string {
			return []string{s.group, s.resource, s.verb, string(s.source), s.rule, s.index}
		},
		value: func(c *counts) int64 { return c.reads.Load() },
	}, {
		Description: annexed.Description{
			Name: "annex_reads_failed_total", Labels: bySource,
			Help: "Gets and lists that were answered with an error or broken off, by the time limit or because the client left, and watches that were refused.",
		},
		labels: labelsBySource,
		value:  func(c *counts) int64 { return c.failed.Load() },
	}, {
		Description: annexed.Description{
			Name: "annex_read_scanned_objects_total", Labels: byIndex,
			Help: "Objects that gets and lists have compared with selectors, or returned without any.",
		},
		labels: labelsByIndex,
		value:  func(c *counts) int64 { return c.scanned.Load() },
	}, {
		Description: annexed.Description{
			Name: "annex_read_returned_objects_total", Labels: byIndex,
			Help: "Objects in the answers of gets and lists.",
		},
		labels: labelsByIndex,
		value:  func(c *counts) int64 { return c.returned.Load() },
	}, {
		Description: annexed.Description{
			Name: "annex_read_response_bytes_total", Labels: bySource,
			Help: "Bytes of the answers as they left the server, of watches those sent so far.",
		},
		labels: labelsBySource,
		value:  func(c *counts) int64 { return c.bytes.Load() },
	}, {
		Description: annexed.Description{
			Name: "annex_list_profile_rows", Gauge: true,
			Help: "ListProfiles that this process keeps, those that add up others included.",
		},
		ofRows: func(rows int, _ int64) int64 { return int64(rows) },
	}, {
		Description: annexed.Description{
			Name: "annex_list_profile_dropped_total",
			Help: "ListProfiles that had to make room for others.",
		},
		ofRows: func(_ int, dropped int64) int64 { return dropped },
	}}
}

// Descriptions lists the metrics of this package for the reference page. All are of stability ALPHA.
func Descriptions() []annexed.Description {
	var all []annexed.Description
	for _, m := range allMetrics() {
		all = append(all, m.Description)
	}
	return all
}

// Register publishes the metrics, see the Register of the storage metrics.
func (t *Tracker) Register(register func(metrics.StableCollector) error) error {
	if err := register(newCollector(t)); err != nil {
		return fmt.Errorf("registering the metrics of reads: %w", err)
	}
	return nil
}

var _ metrics.StableCollector = &collector{}

type collector struct {
	metrics.BaseStableCollector

	source  *Tracker
	metrics []metric
	descs   []*metrics.Desc
}

func newCollector(source *Tracker) *collector {
	c := &collector{source: source, metrics: allMetrics()}
	for _, m := range c.metrics {
		c.descs = append(c.descs, m.Desc())
	}
	return c
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range c.descs {
		ch <- desc
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	all := c.source.counters.snapshot()
	rows, dropped := c.source.table.size()
	for i, m := range c.metrics {
		if m.ofRows != nil {
			ch <- metrics.NewLazyConstMetric(c.descs[i], m.kind(), float64(m.ofRows(rows, dropped)))
			continue
		}
		for _, total := range m.totals(all) {
			ch <- metrics.NewLazyConstMetric(c.descs[i], m.kind(), float64(total.value), total.labels...)
		}
	}
}

// total is one sample of a metric.
type total struct {
	labels []string
	value  int64
}

// totals adds up the series that a metric does not tell apart.
func (m metric) totals(all map[series]*counts) map[string]*total {
	totals := map[string]*total{}
	for s, c := range all {
		if c.reads.Load() == 0 && m.value(c) == 0 {
			continue // it has what others left, see forgetIndexes, and nothing of this
		}
		labels := m.labels(s)
		id := strings.Join(labels, "\x00")
		if totals[id] == nil {
			totals[id] = &total{labels: labels}
		}
		totals[id].value += m.value(c)
	}
	return totals
}
