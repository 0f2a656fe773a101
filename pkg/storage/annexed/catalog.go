// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
)

// ListCost is what a list goes through, as far as it is known without reading anything.
type ListCost struct {
	// Scanned is the number of objects that are compared with the selectors, or returned
	// without. It is an estimate.
	Scanned int64
	// ObjectBytes is the estimated size of one object as it is stored, or 0.
	ObjectBytes int64
}

// Catalog knows the storages with watch caches of one server, and tells what a list of
// theirs costs before it is run. It is safe for concurrent use.
type Catalog struct {
	lock     sync.RWMutex
	storages map[schema.GroupVersionResource]*rotation
}

// NewCatalog returns a catalog that Config.Catalog fills.
func NewCatalog() *Catalog {
	return &Catalog{storages: map[schema.GroupVersionResource]*rotation{}}
}

// add makes a storage the one of its resource until remove is called. The storage of before may
// be removed later than that.
func (c *Catalog) add(resource schema.GroupVersionResource, r *rotation) (remove func()) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.storages[resource] = r
	return func() {
		c.lock.Lock()
		defer c.lock.Unlock()
		if c.storages[resource] == r {
			delete(c.storages, resource)
		}
	}
}

// ListCost estimates a list of the objects in a namespace, or in all for "". It reports false for one
// that is not answered by a watch cache of objects that have names: of what is in others nothing is
// known but what Stats counts.
func (c *Catalog) ListCost(ctx context.Context, resource schema.GroupVersionResource, namespace string, opts storage.ListOptions) (ListCost, bool) {
	c.lock.RLock()
	r := c.storages[resource]
	c.lock.RUnlock()
	if r == nil {
		return ListCost{}, false
	}
	g := r.enter()
	if g == nil {
		return ListCost{}, false
	}
	defer g.calls.Done()
	return g.listCost(ctx, namespace, opts)
}

// listCost is called for every list, before fairness has let it in: it asks nobody, and looks at a few
// objects of the sample only for a list whose limit is below what it may have to compare.
func (g *generation) listCost(ctx context.Context, namespace string, opts storage.ListOptions) (ListCost, bool) {
	if !g.indexes.samples() {
		return ListCost{}, false
	}
	opts.Recursive = true
	reading, err := g.decide(opts)
	if err != nil || reading.Source != SourceCache {
		return ListCost{}, false
	}
	l := g.newListing(g.prefix+namespace, opts)
	reading = g.finish(ctx, reading, l)
	reading.Scanned = int64(g.indexes.sample.inScope(namespace))
	if reading.Index != "" {
		// Those of all namespaces are at hand without a look at every object of the sample.
		if offers := g.indexes.offers(reading.Index, l.read().Predicate, ""); offers >= 0 {
			reading.Scanned = min(reading.Scanned, int64(offers))
		}
	}
	reading.Returned = -1
	if limit := opts.Predicate.Limit; reading.Index == "" && limit > 0 && limit < reading.Scanned {
		reading.Returned = int64(g.indexes.estimateBy(g.indexes.sample.matchingFew, opts.Predicate, namespace))
	}
	reading = g.withStats(limited(reading, opts.Predicate))
	if reading.ObjectBytes == 0 && reading.Scanned > 0 {
		g.learnSize()
	}
	return ListCost{Scanned: reading.Scanned, ObjectBytes: reading.ObjectBytes}, true
}
