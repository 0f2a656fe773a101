// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/report"
)

// freshness is what a LIST says about how new the answer has to be.
type freshness struct {
	name, title string
	query       url.Values
}

// freshnesses are the two that informers and users send: any state that the server
// has in its cache, and the newest.
func freshnesses() []freshness {
	return []freshness{
		{name: "rv0", title: "RV=0", query: url.Values{"resourceVersion": {"0"}}},
		{name: "newest", title: "RV unset"},
	}
}

// turns counts on over everything that is measured, so that what is selected is always something
// else than before: annex remembers for some seconds what the host has said about a user and a selector.
type turns map[turn]int

// turn is what is counted for itself.
type turn struct{ side, way string }

// next returns 0 and then one more each time.
func (t turns) next(side cluster.Side, way string) int {
	key := turn{side.Name, way}
	n := t[key]
	t[key]++
	return n
}

// listSelective measures LISTs that return a small part of all endpoints.
type listSelective struct {
	pace    pace
	clients clients
	turns   turns
}

var (
	_ Scenario = &listSelective{}
	_ Titled   = &listSelective{}
)

func newListSelective(smoke bool) *listSelective {
	return &listSelective{pace: selectivePace(smoke), turns: turns{}}
}

func selectivePace(smoke bool) pace {
	p := pace{atLeast: 3, atMost: 100, budget: 200 * time.Millisecond}
	if smoke {
		p.budget /= 2
	}
	return p
}

// selector is one way to select.
type selector struct {
	name, title string
	// indexed says that annex has an index for it.
	indexed bool
	// selection returns the n-th of count.
	selection func(shape dataset.Shape, n int) dataset.Selection
}

func selectors() []selector {
	return []selector{
		{"field", "LIST by field", true, func(s dataset.Shape, n int) dataset.Selection { return s.OnNode(n % s.Nodes) }},
		{"few", "LIST by label of few", true, func(s dataset.Shape, n int) dataset.Selection { return s.OnLabeledNode(n % s.Nodes) }},
		{"label", "LIST by label of many, no index", false, func(s dataset.Shape, n int) dataset.Selection { return s.OfApp(n % dataset.Apps) }},
		{"namespace", "LIST of a namespace", false, func(s dataset.Shape, n int) dataset.Selection { return s.InNamespace(n % s.Namespaces) }},
	}
}

// Name implements Scenario.
func (s *listSelective) Name() string { return "list-selective" }

// Title implements Titled.
func (s *listSelective) Title() string { return "LIST of a part of the endpoints" }

// Metrics implements Scenario.
func (s *listSelective) Metrics() []Metric {
	return selectiveMetrics(selectors())
}

func selectiveMetrics(ways []selector) []Metric {
	var metrics []Metric
	for _, what := range ways {
		for _, fresh := range freshnesses() {
			name, title := what.name+"."+fresh.name, what.title+", "+fresh.title
			metrics = append(metrics,
				Metric{Name: name + ".time", Title: title, Unit: report.Seconds, Better: Lower},
				Metric{Name: name + ".cpu", Title: title + ", CPU", Unit: report.Seconds, Better: Lower},
			)
		}
	}
	return metrics
}

// Prepare implements Scenario.
func (s *listSelective) Prepare(_ context.Context, c *cluster.Cluster) error {
	var err error
	s.clients, err = newClients(c.Sides())
	return err
}

// Round implements Scenario.
func (s *listSelective) Round(ctx context.Context, c *cluster.Cluster, side cluster.Side) (Sample, error) {
	return s.pace.listSelective(ctx, c, side, s.clients[side.Name], s.turns, selectors())
}

// listSelective measures LISTs of the endpoints that are selected in some ways.
func (p pace) listSelective(ctx context.Context, c *cluster.Cluster, side cluster.Side, with *client.Client, turns turns, ways []selector) (Sample, error) {
	sample := Sample{Metrics: map[string]float64{}}
	for _, what := range ways {
		for _, fresh := range freshnesses() {
			got, err := p.repeat(ctx, side, func(ctx context.Context, _ int) (client.Answer, func() error, error) {
				selection := what.selection(c.Sizes.Shape, turns.next(side, what.name))
				answer, err := with.Get(ctx, side.URL(dataset.Endpoints, selection, fresh.query), false)
				return answer, func() error { return answer.Expect(selection.Count(c.Sizes.Endpoints)) }, err
			})
			if err != nil {
				return Sample{}, fmt.Errorf("%s, %s: %w", what.title, fresh.title, err)
			}
			name := what.name + "." + fresh.name
			sample.Metrics[name+".time"] = got.median()
			sample.Metrics[name+".cpu"] = got.cpu
		}
	}
	return sample, nil
}

// Close implements Scenario.
func (s *listSelective) Close(context.Context) error {
	s.clients.close()
	return nil
}
