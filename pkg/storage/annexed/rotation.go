// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
)

var _ storage.Interface = &rotation{}

// rotation is a storage whose watch cache is replaced when the declaration of
// indexes changes:
//
//	declared ──► opened ──► filled, as fresh as etcd ──► in service ──► calls over ──► stopped
//
// The cache in service answers until the next one is filled, so no request sees
// a cache that is not. The watches of a cache end when it is stopped, as those of
// a custom resource do when its definition changes; clients continue on the next
// one, or list anew when it does not reach back so far.
//
// All caches are over one etcd3 store. A rotation of which nothing but uncached is set has
// no cache ever.
type rotation struct {
	// open builds a cache with indexes that nothing was asked of yet.
	open func(Indexes) (*generation, error)
	// fresh waits until a cache can take over.
	fresh func(context.Context, *generation) error
	// attempt returns a context for building a cache. It ends with the storage.
	attempt func() (context.Context, context.CancelFunc)
	// onEnd calls a function in a goroutine of its own when the storage ends, unless the
	// function that it returns was called before.
	onEnd func(func()) func() bool
	// turns are those of all storages that have memory in common.
	turns  *turns
	builds sync.WaitGroup
	// lazy lets the first request that needs a cache start it and wait with patience.
	lazy     bool
	patience time.Duration
	// lateWatches has room for the watches that etcd answers as the first cache began too
	// late for them, each for lateWatchPeriod.
	lateWatches     chan struct{}
	lateWatchPeriod time.Duration
	// queue has room for the requests that wait for a first cache. Storages that have
	// fairness in common share it.
	queue chan struct{}
	// fill opens the first cache. It is not part of the request that starts it.
	fill func() error
	// uncached answers while there is no cache.
	uncached uncachedReads

	lock sync.RWMutex
	// lazyStart is nil in a rotation that is not lazy, and as long as nothing needs a cache.
	lazyStart *lazyStart
	late      lateness
	current   *generation
	declared  Indexes // of current
	wanted    Indexes
	building  bool
	// abandon ends the attempt to fill a cache that is not wanted any more.
	abandon context.CancelFunc
	// replaced are those that still have calls under way.
	replaced map[*generation]struct{}
	stopped  bool
}

// newRotation returns a rotation without a cache. fresh is called with a context
// that ends with ctx, which is the life of the storage.
func newRotation(ctx context.Context, turns *turns, open func(Indexes) (*generation, error), fresh func(context.Context, *generation) error) *rotation {
	r := &rotation{
		open: open, fresh: fresh, turns: turns, patience: firstFillPatience, replaced: map[*generation]struct{}{},
		lateWatches: make(chan struct{}, lateWatches), lateWatchPeriod: lateWatchPeriod,
		queue:   make(chan struct{}, firstFillQueue),
		attempt: func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		onEnd:   func(call func()) func() bool { return context.AfterFunc(ctx, call) },
	}
	r.fill = r.fillFirst
	return r
}

// openFirst opens the first cache, with the indexes that were declared before, and
// puts it into service.
func (r *rotation) openFirst() (*generation, error) {
	r.lock.RLock()
	declared := r.wanted
	r.lock.RUnlock()
	first, err := r.open(declared)
	if err != nil {
		return nil, err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.stopped {
		go first.stop()
		return nil, errClosed
	}
	r.current, r.declared = first, declared
	r.buildLocked()
	return first, nil
}

// declare makes the indexes those that are wanted. It does not wait for them.
func (r *rotation) declare(indexes Indexes) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.stopped || r.wanted.Equal(indexes) {
		return
	}
	r.wanted = indexes
	if r.abandon != nil {
		r.abandon()
	}
	r.buildLocked()
}

func (r *rotation) buildLocked() {
	if r.current == nil || r.building || r.declared.Equal(r.wanted) {
		return
	}
	r.building = true
	r.builds.Go(r.build)
}

// build replaces the cache until it has the indexes that are wanted.
func (r *rotation) build() {
	for {
		ctx, wanted, ok := r.nextBuild()
		if !ok {
			return
		}
		giveBack, err := r.turns.take(ctx)
		if err != nil {
			continue // it is not wanted any more
		}
		r.buildOne(ctx, wanted)
		giveBack()
	}
}

// buildOne fills a cache and puts it into service if it is still wanted then.
func (r *rotation) buildOne(ctx context.Context, wanted Indexes) {
	next, err := r.open(wanted)
	if err != nil {
		klog.ErrorS(err, "Opening a cache with the declared indexes failed, the one before stays in service: declare others", "indexes", wanted)
		r.giveUp(wanted)
		return
	}
	if r.fresh(ctx, next) != nil {
		next.stop() // it is not wanted any more
		return
	}
	if old := r.replace(next, wanted); old != nil {
		r.retire(old)
	} else {
		next.stop()
	}
}

// nextBuild returns what is to be built, or false when nothing is.
func (r *rotation) nextBuild() (context.Context, Indexes, bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.abandon != nil {
		r.abandon()
		r.abandon = nil
	}
	if r.stopped || r.declared.Equal(r.wanted) {
		r.building = false
		return nil, Indexes{}, false
	}
	ctx, cancel := r.attempt()
	r.abandon = cancel
	return ctx, r.wanted, true
}

// giveUp keeps the cache in service for indexes that cannot be had.
func (r *rotation) giveUp(wanted Indexes) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.declared = wanted
}

// replace puts a cache into service and returns the one before, or nil when the
// new one is not wanted any more.
func (r *rotation) replace(next *generation, declared Indexes) *generation {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.stopped || !r.wanted.Equal(declared) {
		return nil
	}
	old := r.current
	r.current, r.declared = next, declared
	r.replaced[old] = struct{}{}
	return old
}

// retire stops a cache when the calls that it has begun are over.
func (r *rotation) retire(old *generation) {
	go func() {
		old.calls.Wait()
		old.stop()
		r.lock.Lock()
		defer r.lock.Unlock()
		delete(r.replaced, old)
	}()
}

// stop ends everything. It waits for no call.
func (r *rotation) stop() {
	r.lock.Lock()
	r.stopped = true
	if r.abandon != nil {
		r.abandon()
	}
	var live []*generation
	if r.current != nil {
		live = append(live, r.current)
	}
	for old := range r.replaced {
		live = append(live, old)
	}
	r.lock.Unlock()
	r.builds.Wait()
	for _, g := range live {
		g.stop()
	}
}

// enter returns the cache in service, nil when there is none. The caller calls calls.Done on it.
func (r *rotation) enter() *generation {
	r.lock.RLock()
	defer r.lock.RUnlock()
	if r.current != nil {
		r.current.calls.Add(1)
	}
	return r.current
}

// keys lists the keys in the cache in service. It may be called before there is one.
func (r *rotation) keys(ctx context.Context) ([]string, error) {
	g := r.enter()
	if g == nil {
		return nil, errors.New("no watch cache is in service yet, ask again")
	}
	defer g.calls.Done()
	return g.keys(ctx)
}

// Versioner implements storage.Interface.
func (r *rotation) Versioner() storage.Versioner {
	s, done := r.direct()
	defer done()
	return s.Versioner()
}

// Create implements storage.Interface.
func (r *rotation) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	s, done := r.direct()
	defer done()
	return s.Create(ctx, key, obj, out, ttl)
}

// Delete implements storage.Interface.
func (r *rotation) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, cachedExistingObject runtime.Object, opts storage.DeleteOptions,
) error {
	s, done := r.direct()
	defer done()
	return s.Delete(ctx, key, out, preconditions, validateDeletion, cachedExistingObject, opts)
}

// Watch implements storage.Interface. The watch ends with the cache, or with the storage.
func (r *rotation) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	g, err := r.enterForWatch(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return watch.NewEmptyWatch(), nil // upstream's way to answer a client that has gone
	case err != nil:
		return nil, err
	case g == nil:
		return r.withoutCache(ctx).watch(ctx, key, opts)
	}
	defer g.calls.Done()
	if r.missed(opts) {
		if watched, ok, err := r.watchMissed(ctx, key, opts); ok {
			return watched, err
		}
	}
	return g.watch(ctx, key, opts)
}

// Get implements storage.Interface.
func (r *rotation) Get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	g := r.enterForGet(ctx, opts.ResourceVersion)
	if g == nil {
		return r.withoutCache(ctx).get(ctx, key, opts, objPtr)
	}
	defer g.calls.Done()
	return g.get(ctx, key, opts, objPtr)
}

// GetList implements storage.Interface.
func (r *rotation) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	g, err := r.enterForList(ctx, opts)
	if err != nil {
		return err
	}
	if g == nil {
		return r.withoutCache(ctx).getList(ctx, key, opts, listObj)
	}
	defer g.calls.Done()
	if r.isUnreadable(g, opts) && !explains(ctx) {
		return r.uncached.by(RuleLatestFromEtcd).getList(ctx, key, opts, listObj)
	}
	return g.getList(ctx, key, opts, listObj)
}

// GuaranteedUpdate implements storage.Interface.
func (r *rotation) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object,
) error {
	s, done := r.direct()
	defer done()
	return s.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cachedExistingObject)
}

// Stats implements storage.Interface.
func (r *rotation) Stats(ctx context.Context) (storage.Stats, error) {
	g := r.enter()
	if g == nil {
		// Sizes are not asked for: a version that nobody uses may need a webhook to be read.
		return r.uncached.store.Stats(ctx)
	}
	defer g.calls.Done()
	return g.sizedStats(ctx)
}

// ReadinessCheck implements storage.Interface. A storage whose cache nobody needs is ready
// if etcd's store is.
func (r *rotation) ReadinessCheck() error {
	s, done := r.direct()
	defer done()
	return s.ReadinessCheck()
}

// RequestWatchProgress implements storage.Interface.
func (r *rotation) RequestWatchProgress(ctx context.Context) error {
	s, done := r.direct()
	defer done()
	return s.RequestWatchProgress(ctx)
}

// GetCurrentResourceVersion implements storage.Interface.
func (r *rotation) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	s, done := r.direct()
	defer done()
	return s.GetCurrentResourceVersion(ctx)
}

// EnableResourceSizeEstimation implements storage.Interface.
func (r *rotation) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	s, done := r.direct()
	defer done()
	return s.EnableResourceSizeEstimation(keys)
}

// CompactRevision implements storage.Interface.
func (r *rotation) CompactRevision() int64 {
	s, done := r.direct()
	defer done()
	return s.CompactRevision()
}
