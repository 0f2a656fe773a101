// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// statsAge is how old statistics may be that explain a read.
const statsAge = 10 * time.Second

// explainList decides and records a list without reading it. The answer has no items
// and, where the cache is filled, its resource version.
//
// It is refused as the real one is, but for what only reading finds out: a revision
// that the cache does not reach in time, or that is compacted in etcd.
func (g *generation) explainList(ctx context.Context, recorder *Recorder, key string, opts storage.ListOptions, listObj runtime.Object) error {
	reading, err := g.decide(opts)
	if err != nil {
		recorder.record(reading)
		return err
	}
	exists, err := g.probe(ctx, key, listObj)
	if err != nil && reading.Source != SourceEtcd {
		reading.Source = ""
		recorder.record(reading)
		return err
	}
	if reading.Source == "" {
		reading.Source = SourceCache // it was filled in the meantime
	}
	if err == nil {
		g.refreshStats(ctx)
		reading.Total = g.knownTotal()
	}
	l := g.newListing(key, opts)
	reading = g.estimate(g.finish(ctx, reading, l), l)
	if !opts.Recursive {
		reading.Scanned, reading.Returned = 1, 1
		if err == nil && !exists {
			reading.Returned = 0
		}
	}
	recorder.record(g.withStats(reading))
	return noItems(listObj)
}

// explainWatch decides and records a watch without starting it. The answer ends at once.
// That the revision is too old is found out only by starting.
func (g *generation) explainWatch(ctx context.Context, recorder *Recorder, key string, opts storage.ListOptions) (watch.Interface, error) {
	_, err := g.delegator.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err == nil {
		_, err = g.probe(ctx, key, g.newList())
	}
	recorder.record(g.readingOfWatch(opts, err))
	if err != nil {
		return nil, err
	}
	return watch.NewEmptyWatch(), nil
}

// probe reads one key from the cache, without waiting. So listObj has the resource version
// of the cache, and the error is that with which the cache refuses any read now.
func (g *generation) probe(ctx context.Context, key string, listObj runtime.Object) (exists bool, err error) {
	err = g.cache.GetList(ctx, key, storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything}, listObj)
	return err == nil && meta.LenList(listObj) > 0, err
}

// noItems makes a list one of no items, which is not the same as none.
func noItems(listObj runtime.Object) error {
	items, err := itemsOf(listObj)
	if err != nil {
		return err
	}
	items.Set(reflect.MakeSlice(items.Type(), 0, 0))
	return nil
}

// refreshStats takes statistics if those at hand are old and the sample does not say it
// better. What is not known then is left out.
func (g *generation) refreshStats(ctx context.Context) {
	known := g.stats.Load()
	switch {
	case known == nil:
	case time.Since(known.at) < statsAge:
		return
	case known.EstimatedAverageObjectSizeBytes > 0 && g.sampled() && g.indexes.sample.exact():
		return
	}
	stats, err := g.takeStats(ctx)
	if err != nil || stats.ObjectCount == 0 || stats.EstimatedAverageObjectSizeBytes > 0 {
		return
	}
	if g.readSome(ctx) == nil {
		_, _ = g.takeStats(ctx)
	}
}

// estimate adds how many objects a list would compare and return.
func (g *generation) estimate(reading Reading, l *listing) Reading {
	namespace := g.namespaceOf(l.key)
	reading.Scanned = reading.Total
	switch {
	case reading.Index != "":
		reading.Scanned = int64(g.indexes.offers(reading.Index, l.read().Predicate, namespace))
	case namespace != "" && g.sampled():
		reading.Scanned = int64(g.indexes.sample.inScope(namespace))
	case namespace != "":
		reading.Scanned = -1
	}
	if reading.Returned = -1; g.sampled() {
		reading.Returned = int64(g.indexes.estimateMatches(l.opts.Predicate, namespace))
	}
	return limited(reading, l.opts.Predicate)
}

// limited takes the selectors and the limit into account: a list stops when it has enough.
func limited(reading Reading, predicate storage.SelectionPredicate) Reading {
	limit := predicate.Limit
	if reading.LimitIgnored {
		limit = 0
	}
	if selectsAll(predicate) {
		if limit > 0 && reading.Scanned > limit {
			reading.Scanned = limit
		}
		reading.Returned = reading.Scanned
		return reading
	}
	if limit > 0 && reading.Returned > limit {
		if reading.Scanned > 0 {
			reading.Scanned = (reading.Scanned*limit + reading.Returned - 1) / reading.Returned
		}
		reading.Returned = limit
	}
	return reading
}

// samples reports whether the sample is told of the objects.
func (x *indexSet) samples() bool { return !x.nameless }

// offers estimates the objects in a namespace, or in all for "", that an index has for
// a predicate: upstream takes those of other namespaces out before it compares. It
// returns -1 for an index that is not ours.
func (x *indexSet) offers(index string, predicate storage.SelectionPredicate, namespace string) int {
	for _, c := range x.candidates(predicate) {
		if c.name() != index {
			continue
		}
		if namespace == "" {
			return c.offers
		}
		return x.sample.matching(func(labelSet labels.Set, fieldSet fields.Set) bool {
			return c.has(labelSet, fieldSet) && fieldSet.Get(namespaceField) == namespace
		})
	}
	return -1
}

// estimateMatches estimates the objects that a predicate selects in a namespace, or in all
// for "". It returns -1 when nothing is known of the objects.
func (x *indexSet) estimateMatches(predicate storage.SelectionPredicate, namespace string) int {
	return x.estimateBy(x.sample.matching, predicate, namespace)
}

// estimateBy is estimateMatches with a way to go through the sample.
func (x *indexSet) estimateBy(matching func(sampleMatch) int, predicate storage.SelectionPredicate, namespace string) int {
	if !x.samples() {
		return -1
	}
	return matching(func(labelSet labels.Set, fieldSet fields.Set) bool {
		return (namespace == "" || fieldSet.Get(namespaceField) == namespace) &&
			(predicate.Label == nil || predicate.Label.Matches(labelSet)) &&
			(predicate.Field == nil || predicate.Field.Matches(fieldSet))
	})
}
