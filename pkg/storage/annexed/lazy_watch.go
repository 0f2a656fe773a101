// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
)

const (
	// lateWatches is the number of watches of one storage that etcd answers at a time, and
	// lateWatchPeriod how long it does. etcd has everything read for each of them, so they
	// are for the few clients that follow what they have just written.
	lateWatches     = 64
	lateWatchPeriod = time.Minute
)

// lateness is what a cache missed because it was started later than its storage. Upstream's
// cache would have those events, so a client that creates an object and watches from
// there is not sent away: etcd answers its watch. Older watches than that, and those above
// lateWatches, are refused by the cache as after any start of a server (410).
type lateness struct {
	// born is the revision at which the storage was opened, 0 while it is not known.
	born uint64
	// filled is the one at which its first cache was filled, 0 before.
	filled uint64
}

// missed reports whether the cache has not seen all events that a watch begins with.
func (l lateness) missed(revision uint64) bool {
	return l.born > 0 && l.born <= revision && revision < l.filled
}

// learnBirth asks for the current revision, unless it cannot be had at once.
func (r *rotation) learnBirth(store storage.Interface) {
	r.builds.Go(func() {
		ctx, cancel := r.attempt()
		defer cancel()
		born, err := store.GetCurrentResourceVersion(ctx)
		if err != nil {
			klog.V(2).InfoS("The revision at which a storage was opened is not known, early watches will be refused once", "err", err)
			return
		}
		r.lock.Lock()
		defer r.lock.Unlock()
		r.late.born = born
	})
}

// learnFill waits until a cache is filled and asks how far it is. It reports whether it is to
// be asked no more, as it has answered or ctx is done.
func (r *rotation) learnFill(ctx context.Context, first *generation) bool {
	if first.cache.Wait(ctx) != nil {
		return ctx.Err() != nil
	}
	list := first.newList()
	// One object that is not there: a list of many at resourceVersion 0 ignores its limit.
	err := first.cache.GetList(ctx, first.prefix+"none", storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything}, list)
	if err != nil {
		return ctx.Err() != nil // it is being filled anew, or stopped
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return true
	}
	filled, err := first.delegator.Versioner().ParseResourceVersion(accessor.GetResourceVersion())
	if err != nil {
		return true
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.late.filled = filled
	return true
}

// missed reports whether etcd has to answer a watch, as the cache was started too late for it.
func (r *rotation) missed(opts storage.ListOptions) bool {
	if !r.lazy || opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		return false
	}
	revision, err := r.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return false
	}
	r.lock.RLock()
	defer r.lock.RUnlock()
	return r.late.missed(revision)
}

// watchMissed lets etcd answer a watch, or reports that too many are answered so already.
// The watch ends after lateWatchPeriod, or with the storage, as one of a cache does.
func (r *rotation) watchMissed(ctx context.Context, key string, opts storage.ListOptions) (watched watch.Interface, ok bool, err error) {
	release := func() {}
	if !explains(ctx) {
		select {
		case r.lateWatches <- struct{}{}:
			release = sync.OnceFunc(func() { <-r.lateWatches })
		default:
			return nil, false, nil
		}
	}
	fromEtcd, err := r.uncached.by(RuleWatchFromEtcd).watch(ctx, key, opts)
	if err != nil {
		release()
		return nil, true, err
	}
	if !opts.Predicate.AllowWatchBookmarks {
		fromEtcd = newUnmarkedWatch(fromEtcd)
	}
	timer := time.AfterFunc(r.lateWatchPeriod, func() {
		fromEtcd.Stop()
		release()
	})
	return newEndingWatch(ctx, fromEtcd, r.onEnd, func() {
		timer.Stop()
		release()
	}), true, nil
}

// unmarkedWatch is a watch without bookmarks. etcd sends those that a cache asks for to all watches of a connection, also to
// those of clients that want none (k8s.io/apiserver pkg/storage/etcd3/watcher.go, startWatching).
type unmarkedWatch struct {
	watch.Interface
	events chan watch.Event
	stop   func()
}

// newUnmarkedWatch returns a watch over another one, which ends with it.
func newUnmarkedWatch(inner watch.Interface) *unmarkedWatch {
	stopped := make(chan struct{})
	w := &unmarkedWatch{Interface: inner, events: make(chan watch.Event, cap(inner.ResultChan())), stop: sync.OnceFunc(func() { close(stopped) })}
	go func() {
		defer close(w.events)
		for event := range inner.ResultChan() {
			if event.Type == watch.Bookmark {
				continue
			}
			select {
			case w.events <- event:
			case <-stopped:
				return
			}
		}
	}()
	return w
}

// ResultChan implements watch.Interface.
func (w *unmarkedWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *unmarkedWatch) Stop() {
	w.stop()
	w.Interface.Stop()
}
