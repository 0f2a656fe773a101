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

// listLarge measures LISTs of the few large objects. They have a cluster of their
// own, which ends with the scenario: an API server takes several gigabytes for
// them, which the machine does not have for all clusters at once.
type listLarge struct {
	*listFull

	cluster *cluster.Cluster
}

var (
	_ Scenario    = &listLarge{}
	_ Sided       = &listLarge{}
	_ Independent = &listLarge{}
	_ Titled      = &listLarge{}
	_ Paced       = &listLarge{}
)

func newListLarge() *listLarge {
	s := &listLarge{listFull: &listFull{name: "list-large", title: "LIST of all large objects"}}
	for _, kind := range []dataset.Kind{dataset.Reports, dataset.Flows} {
		s.lists = append(s.lists, fullList{
			name: kind.Resource(), title: "full LIST of " + kind.Resource() + ", RV=0", kind: kind,
			query: url.Values{"resourceVersion": {"0"}},
		})
	}
	return s
}

// Prepare implements Scenario.
func (s *listLarge) Prepare(ctx context.Context, main *cluster.Cluster) error {
	var err error
	s.cluster, err = cluster.Start(ctx, cluster.Options{
		Env: main.Env, Sizes: main.Sizes, Kinds: []dataset.Kind{dataset.Reports, dataset.Flows}, Progress: main.Progress,
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

// Round implements Scenario.
func (s *listLarge) Round(ctx context.Context, _ *cluster.Cluster, side cluster.Side) (Sample, error) {
	return s.listFull.Round(ctx, s.cluster, side)
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
