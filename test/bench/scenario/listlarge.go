// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/url"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
)

// fewShare is which part of the endpoints, on the same part of the nodes, the cluster of large objects has.
const fewShare = 5

// listLarge measures LISTs of the few large objects. They have a cluster of their
// own, which ends with the scenario: an API server takes several gigabytes for
// them, which the machine does not have for all clusters at once. This cluster has fewer
// endpoints, too: a LIST of those of a node returns as many as in the main one, so that
// both together show what it costs to have more that are not asked for.
type listLarge struct {
	*listFull

	cluster *cluster.Cluster
	pace    pace
	turns   turns
}

var (
	_ Scenario    = &listLarge{}
	_ Sided       = &listLarge{}
	_ Independent = &listLarge{}
	_ Titled      = &listLarge{}
	_ Paced       = &listLarge{}
	_ Stepped     = &listLarge{}
)

func newListLarge(smoke bool) *listLarge {
	s := &listLarge{
		listFull: &listFull{name: "list-large", title: "LIST of all large objects, and of a node among fewer endpoints"},
		pace:     selectivePace(smoke), turns: turns{},
	}
	for _, kind := range []dataset.Kind{dataset.Reports, dataset.Flows} {
		s.lists = append(s.lists, fullList{
			name: kind.Resource(), title: "full LIST of " + kind.Resource() + ", RV=0", kind: kind,
			query: url.Values{"resourceVersion": {"0"}},
		})
	}
	return s
}

// fewWays are the ways to select by an index.
func fewWays() []selector {
	var ways []selector
	for _, what := range selectors() {
		if what.indexed {
			what.title += " among a fifth of the endpoints"
			ways = append(ways, what)
		}
	}
	return ways
}

// Metrics implements Scenario.
func (s *listLarge) Metrics() []Metric {
	return append(s.listFull.Metrics(), selectiveMetrics(fewWays())...)
}

// Steps implements Stepped: the selective LISTs come last.
func (s *listLarge) Steps() int { return s.listFull.Steps() + 1 }

// Step implements Stepped.
func (s *listLarge) Step(ctx context.Context, _ *cluster.Cluster, side cluster.Side, step int) (Sample, error) {
	if step < s.listFull.Steps() {
		return s.listFull.Step(ctx, s.cluster, side, step)
	}
	return s.pace.listSelective(ctx, s.cluster, side, s.clients[side.Name], s.turns, fewWays())
}

// Prepare implements Scenario.
func (s *listLarge) Prepare(ctx context.Context, main *cluster.Cluster) error {
	sizes := main.Sizes
	sizes.Endpoints, sizes.Nodes = max(1, sizes.Endpoints/fewShare), max(1, sizes.Nodes/fewShare)
	var err error
	s.cluster, err = cluster.Start(ctx, cluster.Options{
		Env: main.Env, Sizes: sizes, Kinds: dataset.Kinds(), Progress: main.Progress,
	})
	if err != nil {
		return fmt.Errorf("starting a cluster for large objects: %w", err)
	}
	if err := s.cluster.Fill(ctx); err != nil {
		return err
	}
	if err := s.cluster.Warm(ctx); err != nil {
		return err
	}
	return s.listFull.Prepare(ctx, s.cluster)
}

// Independent implements Independent.
func (s *listLarge) Independent() {}

// Sides implements Sided.
func (s *listLarge) Sides(*cluster.Cluster) []cluster.Side { return s.cluster.Sides() }

// Round implements Scenario: all steps on one side.
func (s *listLarge) Round(ctx context.Context, _ *cluster.Cluster, side cluster.Side) (Sample, error) {
	return allSteps(ctx, s, s.cluster, side)
}

// Close implements Scenario.
func (s *listLarge) Close(ctx context.Context) error {
	if s.cluster == nil {
		return nil
	}
	if err := s.listFull.Close(ctx); err != nil {
		return err
	}
	return s.cluster.Stop()
}
