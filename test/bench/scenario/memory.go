// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/report"
)

const (
	// perObjects is for how many objects memory is given.
	perObjects = 100_000
	// memoryObjects and memoryObjectsSmoke are how many objects there are at most: to
	// start three servers of each side in every round takes too long with more. The live
	// heap per object does not depend on their number, that of coldStart is of all.
	memoryObjects, memoryObjectsSmoke = 10_000, 3000
)

// memory measures what objects cost an API server: its memory with all of them in
// its cache, less the memory of the same server with none. The indexes are those of a
// field and of a label, see cluster.OpenGroup. kube-apiserver has none whatever is
// declared, so one of its servers is measured for both.
type memory struct {
	apart *apart
	smoke bool
	// count is how many objects there are.
	count int
}

var (
	_ Scenario    = &memory{}
	_ Sided       = &memory{}
	_ Independent = &memory{}
	_ Titled      = &memory{}
	_ Paced       = &memory{}
)

func newMemory(smoke bool) *memory { return &memory{apart: &apart{}, smoke: smoke} }

// The names of those servings that differ in their indexes only.
const servedPlain, servedIndexed = "plain", "indexed"

// served is one way to serve the endpoints.
type served struct {
	name, title string
	options     dataset.DefinitionOptions
}

// versions are those that are served.
func (s served) versions() []string {
	if s.options.OldVersion {
		return []string{dataset.Version, dataset.OldVersion}
	}
	return []string{dataset.Version}
}

func servings() []served {
	return []served{
		{servedPlain, "1 version, no index", dataset.DefinitionOptions{WithoutFields: true}},
		{servedIndexed, "1 version, 2 indexes", dataset.DefinitionOptions{}},
		{"versions", "2 versions, 2 indexes", dataset.DefinitionOptions{OldVersion: true}},
	}
}

// Name implements Scenario.
func (s *memory) Name() string { return "memory" }

// Title implements Titled.
func (s *memory) Title() string { return "Memory of the API server" }

// Metrics implements Scenario. They say how many objects there are once that is known.
func (s *memory) Metrics() []Metric {
	var metrics []Metric
	add := func(name, title string) {
		metrics = append(metrics, Metric{Name: name, Title: title, Unit: report.Bytes, Better: Lower})
	}
	for _, how := range servings() {
		add(how.name+".heap", fmt.Sprintf("from %d objects, %s, live heap per 100,000", s.count, how.title))
		add(how.name+".resident", fmt.Sprintf("from %d objects, %s, resident per 100,000", s.count, how.title))
		add(how.name+".heap.all", fmt.Sprintf("%s, live heap with %d", how.title, s.count))
		add(how.name+".resident.all", fmt.Sprintf("%s, resident with %d", how.title, s.count))
	}
	metrics = append(metrics, Metric{Name: "indexed.ratio", Title: "2 indexes to none, live heap of objects", Better: Lower})
	add("etcd", fmt.Sprintf("etcd, resident with %d", s.count))
	add("empty.heap", "no objects, live heap")
	add("empty.resident", "no objects, resident")
	return metrics
}

// Independent implements Independent.
func (s *memory) Independent() {}

// Sides implements Sided.
func (s *memory) Sides(*cluster.Cluster) []cluster.Side { return s.apart.cluster.Sides() }

// Rounds implements Paced.
func (s *memory) Rounds(asked int) (measured, warmup int) { return bootRounds(asked, s.smoke) }

// Prepare implements Scenario.
func (s *memory) Prepare(ctx context.Context, c *cluster.Cluster) error {
	s.count = min(c.Sizes.Endpoints, memoryObjects)
	if s.smoke {
		s.count = min(s.count, memoryObjectsSmoke)
	}
	return s.apart.open(ctx, c, s.count)
}

// Round implements Scenario.
func (s *memory) Round(ctx context.Context, _ *cluster.Cluster, side cluster.Side) (Sample, error) {
	empty := s.apart.empty[side.Name]
	metrics := map[string]float64{
		"empty.heap": float64(empty.live), "empty.resident": float64(empty.resident),
	}
	for _, how := range servings() {
		names := []string{how.name}
		if side.Name == cluster.SideHost {
			switch how.name {
			case servedPlain:
				continue
			case servedIndexed:
				names = append(names, servedPlain)
			}
		}
		full, err := s.measure(ctx, side, how)
		if err != nil {
			return Sample{}, fmt.Errorf("%s: %w", how.title, err)
		}
		for _, name := range names {
			metrics[name+".heap"] = per(full.live-empty.live, s.count)
			metrics[name+".resident"] = per(full.resident-empty.resident, s.count)
			metrics[name+".heap.all"] = float64(full.live)
			metrics[name+".resident.all"] = float64(full.resident)
		}
		metrics["etcd"] = float64(full.etcd)
	}
	if side.Name != cluster.SideHost {
		metrics["indexed.ratio"] = metrics[servedIndexed+".heap"] / metrics[servedPlain+".heap"]
	}
	return Sample{Metrics: metrics}, nil
}

// per scales bytes of count objects to perObjects.
func per(bytes int64, count int) float64 { return float64(bytes) * perObjects / float64(count) }

// measure starts a server with a definition and fills the cache of every version.
func (s *memory) measure(ctx context.Context, side cluster.Side, how served) (use memoryUse, err error) {
	if err := cluster.Redefine(ctx, side, dataset.Endpoints, how.options); err != nil {
		return memoryUse{}, err
	}
	booted, err := s.apart.boot(side)
	defer func() { err = errors.Join(err, booted.close()) }()
	if err != nil {
		return memoryUse{}, err
	}
	if _, err := booted.waitForReady(ctx); err != nil {
		return memoryUse{}, err
	}
	for _, version := range how.versions() {
		if err := booted.waitForCache(ctx, version); err != nil {
			return memoryUse{}, fmt.Errorf("reading %s: %w", version, err)
		}
	}
	return booted.memory(ctx)
}

// Close implements Scenario.
func (s *memory) Close(context.Context) error { return s.apart.close() }
