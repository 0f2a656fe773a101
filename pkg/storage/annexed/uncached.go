// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
)

// uncachedReads are the reads that etcd answers where there is no cache, for now or for
// ever, and the record of them.
type uncachedReads struct {
	// store is the etcd3 store.
	store storage.Interface
	// prefix is that of all keys.
	prefix string
	// rule says why it is not a cache that answers.
	rule Rule
	// stats are those that an explanation asked for last, nil before.
	stats *recentStats
}

// recentStats are statistics of etcd, which counts all keys for them. They are taken
// when those at hand are older than statsAge, by one at a time.
type recentStats struct {
	lock  sync.Mutex
	known knownStats
}

func (r *recentStats) get(ctx context.Context, store storage.Interface) (storage.Stats, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if time.Since(r.known.at) < statsAge {
		return r.known.Stats, nil
	}
	stats, err := store.Stats(ctx)
	if err == nil {
		r.known = knownStats{Stats: stats, at: time.Now()}
	}
	return stats, err
}

func newUncachedReads(store storage.Interface, prefix string, rule Rule) uncachedReads {
	return uncachedReads{store: store, prefix: prefix, rule: rule, stats: &recentStats{}}
}

// by are the same reads for another reason.
func (u uncachedReads) by(rule Rule) uncachedReads {
	u.rule = rule
	return u
}

// reading is the record of a read that etcd answers, or, where only the start of the cache is
// missing, of one that the cache would.
func (u uncachedReads) reading() Reading {
	reading := Reading{Source: SourceEtcd, Rule: u.rule, Total: -1}
	if u.rule == RuleNotStarted {
		reading.Source = SourceCache
	}
	return reading
}

// get answers a GET.
func (u uncachedReads) get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	err := u.store.Get(ctx, key, opts, objPtr)
	if recorder := recorderOf(ctx); recorder != nil {
		reading := u.reading()
		if u.rule != RuleNoCache && opts.ResourceVersion == "" {
			reading.Source, reading.Rule = SourceEtcd, RuleGetLatest
		}
		recorder.record(readingOfGet(reading, err))
	}
	return err
}

// getList answers a list.
func (u uncachedReads) getList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	recorder := recorderOf(ctx)
	switch {
	case recorder == nil:
		return u.store.GetList(ctx, key, opts, listObj)
	case recorder.explainOnly:
		return u.explainList(ctx, recorder, key, opts, listObj)
	}
	counted := countComparisons(&opts.Predicate)
	err := u.store.GetList(ctx, key, opts, listObj)
	reading := u.reading()
	if err == nil {
		reading.Returned = int64(meta.LenList(listObj))
	}
	reading.Scanned = counted.orReturned(reading.Returned)
	recorder.record(reading)
	return err
}

// watch answers a watch.
func (u uncachedReads) watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	recorder := recorderOf(ctx)
	if recorder == nil {
		return u.store.Watch(ctx, key, opts)
	}
	reading, watched := u.reading(), watch.NewEmptyWatch()
	var err error
	if recorder.explainOnly {
		_, err = u.store.Versioner().ParseResourceVersion(opts.ResourceVersion)
	} else {
		watched, err = u.store.Watch(ctx, key, opts)
	}
	if err != nil {
		reading.Source, watched = "", nil
	}
	recorder.record(reading)
	return watched, err
}

// explainList decides and records a list without reading it. That its revision is
// compacted is found out only by reading. The answer has no resource version.
func (u uncachedReads) explainList(ctx context.Context, recorder *Recorder, key string, opts storage.ListOptions, listObj runtime.Object) error {
	reading, err := u.decide(key, opts)
	if err != nil {
		recorder.record(reading)
		return err
	}
	if stats, err := u.stats.get(ctx, u.store); err == nil {
		reading.Total, reading.ObjectBytes = stats.ObjectCount, stats.EstimatedAverageObjectSizeBytes
	}
	reading.Scanned, reading.Returned = -1, -1
	if strings.Trim(key, "/") == strings.Trim(u.prefix, "/") {
		reading.Scanned = reading.Total
	}
	reading = limited(reading, opts.Predicate)
	if !opts.Recursive {
		reading.Scanned, reading.Returned = 1, 1
	}
	recorder.record(reading)
	return noItems(listObj)
}

// decide says from where a list would be served. Upstream decides for a cache that has just
// been filled, which has no state of before. What needs no cache does not wait for that.
func (u uncachedReads) decide(key string, opts storage.ListOptions) (Reading, error) {
	reading, refused := u.reading(), Reading{Rule: u.rule, Total: -1}
	if _, _, err := storage.ValidateListOptions(key, u.store.Versioner(), opts); err != nil {
		return refused, err
	}
	if u.rule != RuleNotStarted {
		return reading, nil
	}
	result, err := delegator.ShouldDelegateList(opts, delegator.CacheWithoutSnapshots{})
	if err != nil {
		return refused, err
	}
	if result.ShouldDelegate {
		reading.Source, reading.Rule = SourceEtcd, ruleOf(opts, SourceEtcd)
		return reading, nil
	}
	if _, err := u.store.Versioner().ParseResourceVersion(opts.ResourceVersion); err != nil {
		return refused, err
	}
	if !needsCache(opts) {
		reading.Source, reading.Rule = SourceEtcd, RuleNotReady
		return reading, nil
	}
	reading.LimitIgnored = opts.Recursive && opts.Predicate.Limit > 0 && opts.ResourceVersion == "0"
	return reading, nil
}
