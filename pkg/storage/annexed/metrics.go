// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
)

// Caller says on whose behalf a request went to etcd.
type Caller string

// The callers, as they stand in the label "caller".
const (
	// CallerClient is an API request that etcd answers itself.
	CallerClient Caller = "client"
	// CallerConsistentRead is an API request that the watch cache answers after
	// it has asked etcd for its current revision.
	CallerConsistentRead Caller = "consistent_read"
	// CallerCache is the watch cache for its own sake: filling itself, watching,
	// asking for progress, cleaning up its size estimate.
	CallerCache Caller = "cache"
	// CallerConsistencyCheck is the periodic comparison of cache and etcd
	// (feature gate DetectCacheInconsistency).
	CallerConsistencyCheck Caller = "consistency_check"
	// CallerMonitor is the registry's periodic object count.
	CallerMonitor Caller = "monitor"
)

// Meaning is one sentence about the caller, for the reference page.
func (c Caller) Meaning() string {
	switch c {
	case CallerClient:
		return "an API request that etcd answers itself"
	case CallerConsistentRead:
		return "an API request that the watch cache answers after it has asked etcd for its current revision"
	case CallerCache:
		return "the watch cache for its own sake: filling itself, watching, asking for progress"
	case CallerConsistencyCheck:
		return "the periodic comparison of watch cache and etcd"
	case CallerMonitor:
		return "the periodic object count"
	}
	return ""
}

// Operation is the kind of a request to etcd.
type Operation string

// The operations, as they stand in the label "operation".
const (
	OperationGet                    Operation = "get"
	OperationList                   Operation = "list"
	OperationWatch                  Operation = "watch"
	OperationCreate                 Operation = "create"
	OperationUpdate                 Operation = "update"
	OperationDelete                 Operation = "delete"
	OperationStats                  Operation = "stats"
	OperationWatchProgress          Operation = "watch_progress"
	OperationCurrentResourceVersion Operation = "current_resource_version"
)

// Callers returns every caller there is.
func Callers() []Caller {
	return []Caller{CallerClient, CallerConsistentRead, CallerCache, CallerConsistencyCheck, CallerMonitor}
}

func allOperations() []Operation {
	return []Operation{
		OperationGet, OperationList, OperationWatch, OperationCreate, OperationUpdate, OperationDelete,
		OperationStats, OperationWatchProgress, OperationCurrentResourceVersion,
	}
}

// Request is one kind of request to etcd.
type Request struct {
	Caller    Caller
	Operation Operation
}

// Counts holds how many requests of each kind one resource has sent to etcd. A
// kind that never occurred is absent.
type Counts map[Request]uint64

// Sub returns what was added since earlier, a reading of the same resource.
func (c Counts) Sub(earlier Counts) Counts {
	difference := Counts{}
	for request, n := range c {
		if n > earlier[request] {
			difference[request] = n - earlier[request]
		}
	}
	return difference
}

// Metrics counts requests to etcd for all resources of a server. One count is
// one call of storage.Interface that reached the etcd3 store; a list may be
// several pages and an update a read and a write (etcd_requests_total and
// etcd_request_duration_seconds of k8s.io/apiserver count those, without the
// caller). A failed call counts like any other.
//
//	Name                                 Type     Labels                              Stability
//	annex_storage_etcd_requests_total        counter  group, resource, caller, operation  ALPHA
//	annex_storage_etcd_listed_objects_total  counter  group, resource, caller             ALPHA
//	annex_index_entries                      gauge    group, resource, version, index     ALPHA
//	annex_index_bytes                        gauge    group, resource, version, index     ALPHA
//	annex_watch_caches                       gauge    group, resource, version            ALPHA
//	annex_watch_cache_fill_duration_seconds  gauge    group, resource, version            ALPHA
//
// How to read "who served this request":
//
//	etcd                       caller="client", operation="get" or "list" or "watch"
//	cache, consistent read     caller="consistent_read", operation="current_resource_version"
//	cache                      neither
//
// A resource keeps its counts when its storage is destroyed and built anew, as
// happens to a custom resource whenever its definition changes.
type Metrics struct {
	lock      sync.Mutex
	resources map[schema.GroupResource]*resourceCounts
	indexes   map[*indexSet]schema.GroupVersionResource
	caches    map[*cacheGauge]struct{}
}

// NewMetrics returns counters that stand at zero and are not registered.
func NewMetrics() *Metrics {
	return &Metrics{
		resources: map[schema.GroupResource]*resourceCounts{},
		indexes:   map[*indexSet]schema.GroupVersionResource{},
		caches:    map[*cacheGauge]struct{}{},
	}
}

// showIndexes makes the indexes of a cache visible until hide is called. Of two
// caches of one version, as there are while one replaces the other, the sizes are added.
func (m *Metrics) showIndexes(resource schema.GroupResource, version string, indexes *indexSet) (hide func()) {
	if m == nil {
		return func() {}
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.indexes[indexes] = resource.WithVersion(version)
	return func() {
		m.lock.Lock()
		defer m.lock.Unlock()
		delete(m.indexes, indexes)
	}
}

// indexSize is the estimated size of one index.
type indexSize struct{ entries, bytes int }

// indexName names an index of a version of a resource.
type indexName struct {
	resource schema.GroupVersionResource
	index    string
}

func (m *Metrics) indexSizes() map[indexName]indexSize {
	m.lock.Lock()
	shown := maps.Clone(m.indexes)
	m.lock.Unlock()
	sizes := map[indexName]indexSize{}
	for indexes, resource := range shown {
		for _, index := range indexes.names() {
			name := indexName{resource, index}
			entries, bytes := indexes.sample.size(index)
			sizes[name] = indexSize{sizes[name].entries + entries, sizes[name].bytes + bytes}
		}
	}
	return sizes
}

// Indexed reports whether a cache of a resource, of any version, has an index of that name.
func (m *Metrics) Indexed(resource schema.GroupResource, index string) bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	for indexes, of := range m.indexes {
		if of.GroupResource() == resource && indexes.served.Has(index) {
			return true
		}
	}
	return false
}

// Register publishes the metrics. register is the CustomRegister method of a
// metrics.KubeRegistry, or legacyregistry.CustomRegister for what a generic API
// server shows under /metrics.
func (m *Metrics) Register(register func(metrics.StableCollector) error) error {
	if err := register(newCollector(m)); err != nil {
		return fmt.Errorf("registering storage metrics: %w", err)
	}
	return nil
}

// Counts reads the counts of one resource. Counting goes on meanwhile.
func (m *Metrics) Counts(resource schema.GroupResource) Counts {
	return m.forResource(resource).snapshot()
}

// forResource returns the counters of a resource, new ones at its first call.
// On a nil Metrics they are counters that nobody reads.
func (m *Metrics) forResource(resource schema.GroupResource) *resourceCounts {
	if m == nil {
		return newResourceCounts()
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	counts, ok := m.resources[resource]
	if !ok {
		counts = newResourceCounts()
		m.resources[resource] = counts
	}
	return counts
}

func (m *Metrics) all() map[schema.GroupResource]*resourceCounts {
	m.lock.Lock()
	defer m.lock.Unlock()
	return maps.Clone(m.resources)
}

// resourceCounts are the counters of one resource. The maps hold every possible
// key from the start and are never written to again, so they need no lock.
type resourceCounts struct {
	requests map[Request]*atomic.Uint64
	listed   map[Caller]*atomic.Uint64
}

func newResourceCounts() *resourceCounts {
	counts := &resourceCounts{requests: map[Request]*atomic.Uint64{}, listed: map[Caller]*atomic.Uint64{}}
	for _, caller := range Callers() {
		counts.listed[caller] = &atomic.Uint64{}
		for _, operation := range allOperations() {
			counts.requests[Request{caller, operation}] = &atomic.Uint64{}
		}
	}
	return counts
}

func (c *resourceCounts) addRequest(caller Caller, operation Operation) {
	c.requests[Request{caller, operation}].Add(1)
}

func (c *resourceCounts) addListed(caller Caller, objects int) {
	c.listed[caller].Add(uint64(objects))
}

func (c *resourceCounts) snapshot() Counts {
	counts := Counts{}
	for request, n := range c.requests {
		if value := n.Load(); value > 0 {
			counts[request] = value
		}
	}
	return counts
}
