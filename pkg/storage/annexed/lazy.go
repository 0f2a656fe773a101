// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
	"k8s.io/klog/v2"
)

const (
	// firstFillPatience is how long requests wait for the first cache of a storage. It is half
	// of the minute after which a server gives up a request by default (--request-timeout), so
	// that a client hears upstream's answer of a cache that is not filled (429 with
	// Retry-After, or what etcd holds) instead of a timeout.
	firstFillPatience = 30 * time.Second
	// firstFillQueue is the number of requests of one server that wait. They hold seats of
	// its fairness, and must leave some to requests for what is filled.
	firstFillQueue = 64
)

var errClosed = errors.New("the storage of this resource was closed")

// lazyStart is the start of the first cache of a storage by the first request that needs it.
// On kube-apiserver the cache would be filled by then, so requests wait for it.
type lazyStart struct {
	// over is closed when the cache is filled or waited for no longer.
	over chan struct{}
	// queue has room for the requests that wait. Others share it.
	queue chan struct{}
	// err says why there is no cache. It is read after over.
	err error
}

// isOver reports whether nobody waits any more.
func (s *lazyStart) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// wait waits until the start is over. It refuses those for whom there is no room.
func (s *lazyStart) wait(ctx context.Context) error {
	if s.isOver() {
		return s.err
	}
	select {
	case s.queue <- struct{}{}:
		defer func() { <-s.queue }()
	default:
		return apierrors.NewTooManyRequests("the watch cache is being filled for the first time and enough requests wait for it, ask again", 1)
	}
	select {
	case <-s.over:
		return s.err
	case <-ctx.Done():
		return apierrors.NewTimeoutError("the watch cache is being filled for the first time, ask again", 1)
	}
}

// enterFilled returns the cache in service, nil in a storage that has none. It starts the
// first one of a lazy storage and waits until it is filled, until an attempt to
// fill it fails, until ctx is done, or until the patience of the storage ends. A
// caller that gives up does not end the start for others.
// The caller calls calls.Done on the cache.
func (r *rotation) enterFilled(ctx context.Context) (*generation, error) {
	if !r.lazy {
		return r.enter(), nil
	}
	if err := r.startOnce().wait(ctx); err != nil {
		return nil, err
	}
	return r.enter(), nil
}

// enterForWatch is enterFilled for a watch. One that is only explained starts no cache and
// waits for none: for it there may be none.
func (r *rotation) enterForWatch(ctx context.Context) (*generation, error) {
	if explains(ctx) {
		return r.enter(), nil
	}
	return r.enterFilled(ctx)
}

// enterForList is enterForWatch for a list. There is no cache either for one that needs none
// while the first is being filled. Upstream's own choice would be etcd too, but for the moment in which the
// cache has states of before and is not ready yet: it answers 429 then.
func (r *rotation) enterForList(ctx context.Context, opts storage.ListOptions) (*generation, error) {
	if !r.lazy || explains(ctx) {
		return r.enter(), nil
	}
	if start := r.startOnce(); !start.isOver() && !needsCache(opts) {
		return nil, nil //nolint:nilnil // etcd answers
	}
	return r.enterFilled(ctx)
}

// needsCache reports whether upstream refuses a list as long as the cache is not filled
// (k8s.io/apiserver pkg/storage/cacher/delegator.go, GetList).
func needsCache(opts storage.ListOptions) bool {
	if opts.Predicate.Limit > 0 && selectsAll(opts.Predicate) {
		return false
	}
	result, err := delegator.ShouldDelegateList(opts, delegator.CacheWithoutSnapshots{})
	return err == nil && !result.ShouldDelegate
}

// isUnreadable reports whether a list is of the latest state and the first cache of a lazy storage is not
// filled, as an object cannot be read. Upstream's cache would have been filled before there
// was such an object and would not reach the latest state any more, so etcd would answer
// (k8s.io/apiserver pkg/storage/cacher/delegator.go, GetList): its error names the object.
func (r *rotation) isUnreadable(g *generation, opts storage.ListOptions) bool {
	latest := opts.ResourceVersion == "" && opts.ResourceVersionMatch == "" && opts.Predicate.Continue == ""
	return r.lazy && latest && g.source.unreadable.Load() && !g.cache.Ready()
}

// enterForGet returns the cache in service, for a GET. It does not wait for the first one:
// etcd answers until that is filled. One without a resourceVersion goes to etcd always and
// starts none.
func (r *rotation) enterForGet(ctx context.Context, resourceVersion string) *generation {
	if r.lazy && resourceVersion != "" && !explains(ctx) {
		r.startOnce()
	}
	return r.enter()
}

// withoutCache answers reads while there is no cache.
func (r *rotation) withoutCache(ctx context.Context) uncachedReads {
	if r.lazy && !explains(ctx) {
		return r.uncached.by(RuleNotReady)
	}
	return r.uncached
}

// startOnce returns the start under way or over, a new one when there is none.
func (r *rotation) startOnce() *lazyStart {
	r.lock.RLock()
	start := r.lazyStart
	r.lock.RUnlock()
	if start != nil {
		return start
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.lazyStart != nil {
		return r.lazyStart
	}
	start = &lazyStart{over: make(chan struct{}), queue: r.queue}
	if r.stopped {
		start.err = closedError()
		close(start.over)
		return start
	}
	r.lazyStart = start
	r.builds.Go(func() {
		defer close(start.over)
		start.err = r.fill()
	})
	return start
}

// closedError tells a client to ask again, as the storage of the changed definition is
// opened by the next request.
func closedError() *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(errClosed.Error())
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// fillFirst opens the first cache and waits until it is filled or cannot be at once. When
// it cannot be opened, the next request tries again.
func (r *rotation) fillFirst() error {
	first, err := r.openFirst()
	if errors.Is(err, errClosed) {
		return closedError()
	}
	if err != nil {
		klog.ErrorS(err, "Opening a watch cache failed, the next request that needs it tries again")
		r.lock.Lock()
		defer r.lock.Unlock()
		r.lazyStart = nil
		return apierrors.NewInternalError(err)
	}
	if r.learnPatiently(first) {
		return nil
	}
	ctx, cancel := r.attempt()
	if ctx.Err() == nil {
		klog.InfoS("A watch cache is not filled yet and refuses lists with selectors: look for objects that cannot be read or a slow etcd", "prefix", first.prefix)
	}
	r.builds.Go(func() {
		defer cancel()
		defer first.onEnd(cancel)()
		for !r.learnFill(ctx, first) {
			pause(ctx, catchUpPeriod)
		}
	})
	return nil
}

// learnPatiently reports whether a cache is filled at its first attempt and in time.
func (r *rotation) learnPatiently(first *generation) bool {
	ctx, cancel := r.attempt()
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, r.patience)
	defer cancel()
	defer first.source.onFailure(cancel)()
	return r.learnFill(ctx, first) && ctx.Err() == nil
}

// direct returns what answers a call that needs no cache. The caller calls done.
func (r *rotation) direct() (s storage.Interface, done func()) {
	if g := r.enter(); g != nil {
		return g.delegator, g.calls.Done
	}
	return r.uncached.store, func() {}
}
