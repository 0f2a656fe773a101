// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
)

// get answers a GET, and records it if somebody wants to know.
func (g *generation) get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	recorder := recorderOf(ctx)
	if recorder == nil {
		return g.delegator.Get(ctx, key, opts, objPtr)
	}
	reading := Reading{Source: SourceCache, Total: g.knownTotal()}
	switch {
	case opts.ResourceVersion == "":
		reading.Source, reading.Rule = SourceEtcd, RuleGetLatest
	case !g.cache.Ready():
		reading.Source, reading.Rule = SourceEtcd, RuleNotReady
	case opts.ResourceVersion == "0":
		reading.Rule = RuleAny
	default:
		reading.Rule = RuleNotOlderThan
	}
	ctx, etcd := watchEtcd(ctx)
	err := g.delegator.Get(ctx, key, opts, objPtr)
	if etcd.asked.Load() && reading.Source != SourceEtcd {
		reading.Source, reading.Rule = SourceEtcd, RuleNotReady
	}
	recorder.record(readingOfGet(g.withStats(reading), err))
	return err
}

// readingOfGet counts the object of a GET.
func readingOfGet(reading Reading, err error) Reading {
	if err == nil {
		reading.Scanned, reading.Returned = 1, 1
	}
	return reading
}

// getList answers a list, and records it if somebody wants to know, or explains it.
func (g *generation) getList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	recorder := recorderOf(ctx)
	switch {
	case recorder == nil:
		return g.readList(ctx, g.newListing(key, opts), listObj)
	case recorder.explainOnly:
		return g.explainList(ctx, recorder, key, opts, listObj)
	}
	// What upstream refuses, it refuses below with the same error.
	reading, refused := g.decide(opts)
	counted := countComparisons(&opts.Predicate)
	l := g.newListing(key, opts)
	ctx, etcd := watchEtcd(ctx)
	err := g.readList(ctx, l, listObj)
	switch {
	case etcd.asked.Load():
		// Also where the cache was to answer: upstream asks etcd for what has left the cache.
		if reading.Source != SourceEtcd {
			reading.Source, reading.Rule = SourceEtcd, ruleOf(opts, SourceEtcd)
		}
	case err == nil:
		reading.Source, reading.Rule = SourceCache, ruleOf(opts, SourceCache)
	case refused != nil:
		recorder.record(reading)
		return err
	}
	if err == nil {
		reading.Returned = int64(meta.LenList(listObj))
	}
	reading.Scanned = counted.orReturned(reading.Returned)
	recorder.record(g.withStats(g.finish(ctx, reading, l)))
	return err
}

// watch starts a watch that is dispatched by the trigger where it fits, and records it
// if somebody wants to know, or explains it.
func (g *generation) watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	opts.Predicate = g.indexes.forWatch(opts.Predicate)
	recorder := recorderOf(ctx)
	switch {
	case recorder == nil:
		return g.startWatch(ctx, key, opts)
	case recorder.explainOnly:
		return g.explainWatch(ctx, recorder, key, opts)
	}
	watched, err := g.startWatch(ctx, key, opts)
	recorder.record(g.readingOfWatch(opts, err))
	return watched, err
}

// readingOfWatch says how a watch is dispatched. One that is refused reads nothing.
func (g *generation) readingOfWatch(opts storage.ListOptions, err error) Reading {
	reading := Reading{Rule: RuleWatch, Total: g.knownTotal()}
	if err == nil {
		reading.Source, reading.Index = SourceCache, g.indexes.usedByWatch(opts.Predicate)
	}
	return g.withStats(reading)
}

// decide says from where a list is served and why, as upstream decides it (k8s.io/apiserver
// pkg/storage/cacher/delegator.go, GetList). There is no source for one that the cache
// refuses because it is being filled. The error is upstream's for one that is refused by
// what it says.
func (g *generation) decide(opts storage.ListOptions) (Reading, error) {
	reading := Reading{Total: g.knownTotal()}
	versioner := g.delegator.Versioner()
	if _, _, err := storage.ValidateListOptions(g.prefix, versioner, opts); err != nil {
		return reading, err
	}
	result, err := delegator.ShouldDelegateList(opts, g.cache)
	if err != nil {
		return reading, err
	}
	if result.ShouldDelegate {
		reading.Source, reading.Rule = SourceEtcd, ruleOf(opts, SourceEtcd)
		return reading, nil
	}
	if _, err := versioner.ParseResourceVersion(opts.ResourceVersion); err != nil {
		return reading, err
	}
	switch {
	case g.cache.Ready():
		reading.Source, reading.Rule = SourceCache, ruleOf(opts, SourceCache)
	case opts.Predicate.Limit > 0 && selectsAll(opts.Predicate):
		reading.Source, reading.Rule = SourceEtcd, RuleNotReady
	default:
		reading.Rule = ruleOf(opts, SourceCache)
	}
	return reading, nil
}

// ContinuesLatest reports whether a continue token names a key and no revision, as those that come with the error Expired: it
// goes on in the latest state (k8s.io/apiserver pkg/storage/cacher/cacher.go, ShouldDelegateContinue).
func ContinuesLatest(token string) bool {
	_, revision, err := storage.DecodeContinue(token, "/")
	return err == nil && revision < 0
}

// ruleOf names the rule by which a list is served from a source. Its cases are those of
// upstream's ShouldDelegateList.
func ruleOf(opts storage.ListOptions, source Source) Rule {
	either := func(cache, etcd Rule) Rule {
		if source == SourceEtcd {
			return etcd
		}
		return cache
	}
	version := opts.ResourceVersion
	switch {
	case opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		return either(RuleExact, RuleExactFromEtcd)
	case opts.ResourceVersionMatch == "" && opts.Predicate.Continue != "":
		if ContinuesLatest(opts.Predicate.Continue) {
			return either(RuleLatest, RuleLatestFromEtcd)
		}
		return either(RuleContinue, RuleContinueFromEtcd)
	case opts.ResourceVersionMatch == "" && version == "":
		return either(RuleLatest, RuleLatestFromEtcd)
	case version == "" || version == "0":
		return either(RuleAny, RuleNotReady)
	case opts.ResourceVersionMatch == "" && opts.Predicate.Limit > 0:
		return either(RuleExact, RuleExactFromEtcd)
	default:
		return either(RuleNotOlderThan, RuleNotReady)
	}
}

// finish adds what follows from the source: the index, and that the cache heeds no limit
// at resourceVersion 0 (k8s.io/apiserver pkg/storage/cacher/cacher.go, computeListLimit).
func (g *generation) finish(ctx context.Context, reading Reading, l *listing) Reading {
	if reading.Source != SourceCache {
		return reading
	}
	if l.readsIndex {
		reading.Index = g.indexes.usedByList(ctx, l.read().Predicate)
	}
	reading.LimitIgnored = l.opts.Recursive && l.opts.Predicate.Limit > 0 && l.opts.ResourceVersion == "0"
	return reading
}

func selectsAll(predicate storage.SelectionPredicate) bool {
	return (predicate.Label == nil || predicate.Label.Empty()) && (predicate.Field == nil || predicate.Field.Empty())
}

// knownStats are statistics and when they were taken.
type knownStats struct {
	storage.Stats
	at time.Time
}

// takeStats asks for the statistics, which the registry does every minute, and
// remembers them: upstream goes through all keys for them.
func (g *generation) takeStats(ctx context.Context) (storage.Stats, error) {
	stats, err := g.delegator.Stats(ctx)
	if err == nil {
		g.stats.Store(&knownStats{Stats: stats, at: time.Now()})
	}
	return stats, err
}

// withStats adds the size of an object, if it was asked for before.
func (g *generation) withStats(reading Reading) Reading {
	if known := g.stats.Load(); known != nil {
		reading.ObjectBytes = known.EstimatedAverageObjectSizeBytes
	}
	return reading
}

// sampled reports whether the sample knows the objects. It does not before the first ones are in the cache.
func (g *generation) sampled() bool {
	return g.indexes.samples() && (g.cache.Ready() || g.indexes.sample.inScope("") > 0)
}

// knownTotal is the number of objects in the cache as far as it is known without
// asking, or -1.
func (g *generation) knownTotal() int64 {
	known := g.stats.Load()
	switch {
	case g.sampled() && (known == nil || g.indexes.sample.exact()):
		return int64(g.indexes.sample.inScope(""))
	case known != nil:
		return known.ObjectCount
	default:
		return -1
	}
}

// etcdNote tells whether one read has asked etcd for objects.
type etcdNote struct{ asked atomic.Bool }

type etcdNoteKey struct{}

// watchEtcd returns a context of which noteEtcd takes note.
func watchEtcd(ctx context.Context) (context.Context, *etcdNote) {
	note := &etcdNote{}
	return context.WithValue(ctx, etcdNoteKey{}, note), note
}

func noteEtcd(ctx context.Context) {
	if note, ok := ctx.Value(etcdNoteKey{}).(*etcdNote); ok {
		note.asked.Store(true)
	}
}

// comparisons counts the objects that are compared with a predicate.
type comparisons struct{ made atomic.Int64 }

// countComparisons makes a predicate count. It returns nil for one that selects
// everything, as upstream compares nothing then; a selector of shards alone counts as such.
//
// Upstream asks the label selector of every object that it looks at, also where only the
// fields matter (k8s.io/apiserver pkg/storage/selection_predicate.go), and looks at
// selectors through their methods only.
func countComparisons(predicate *storage.SelectionPredicate) *comparisons {
	if predicate.Label == nil || selectsAll(*predicate) {
		return nil
	}
	counted := &comparisons{}
	predicate.Label = &countedSelector{Selector: predicate.Label, counted: counted}
	return counted
}

// orReturned is the number of comparisons, or returned where nothing is compared.
func (c *comparisons) orReturned(returned int64) int64 {
	if c == nil {
		return returned
	}
	return c.made.Load()
}

var _ labels.Selector = &countedSelector{}

// countedSelector is a label selector that counts how often it is compared.
type countedSelector struct {
	labels.Selector
	counted *comparisons
}

// Matches implements labels.Selector.
func (s *countedSelector) Matches(set labels.Labels) bool {
	s.counted.made.Add(1)
	return s.Selector.Matches(set)
}

// Add implements labels.Selector.
func (s *countedSelector) Add(requirements ...labels.Requirement) labels.Selector {
	return &countedSelector{Selector: s.Selector.Add(requirements...), counted: s.counted}
}

// DeepCopySelector implements labels.Selector. The copy counts together with the original.
func (s *countedSelector) DeepCopySelector() labels.Selector {
	return &countedSelector{Selector: s.Selector.DeepCopySelector(), counted: s.counted}
}
