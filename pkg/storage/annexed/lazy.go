// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
)

// firstFillPatience is how long requests wait for the first cache of a storage. It is half
// of the minute after which a server gives up a request by default (--request-timeout), so
// that a client hears upstream's answer of a cache that is not filled (429 with
// Retry-After, or what etcd holds) instead of a timeout.
const firstFillPatience = 30 * time.Second

var errClosed = errors.New("the storage of this resource was closed")

// lazyStart is the start of the first cache of a storage by the first request that needs it.
// On kube-apiserver the cache would be filled by then, so requests wait for it.
type lazyStart struct {
	// over is closed when the cache is filled or waited for no longer.
	over chan struct{}
	// err says why there is no cache. It is read after over.
	err error
}

// enterFilled returns the cache in service. It starts the first one when there is none and
// waits until it is filled, at most until ctx is done or the start is older than the
// patience of the storage. A caller that gives up does not end the start for others.
// The caller calls calls.Done on the cache.
func (r *rotation) enterFilled(ctx context.Context) (*generation, error) {
	if !r.lazy {
		return r.enter(), nil
	}
	start := r.startOnce()
	select {
	case <-start.over:
	case <-ctx.Done():
		return nil, apierrors.NewTimeoutError("the watch cache is being filled for the first time, ask again", 1)
	}
	if start.err != nil {
		return nil, start.err
	}
	return r.enter(), nil
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
	start = &lazyStart{over: make(chan struct{})}
	if r.stopped {
		start.err = apierrors.NewServiceUnavailable(errClosed.Error())
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

// fillFirst opens the first cache and waits until it is filled. When it cannot be
// opened, the next request tries again.
func (r *rotation) fillFirst() error {
	first, err := r.openFirst()
	if err != nil {
		klog.ErrorS(err, "Opening a watch cache failed, the next request that needs it tries again")
		r.lock.Lock()
		defer r.lock.Unlock()
		r.lazyStart = nil
		return apierrors.NewInternalError(err)
	}
	ctx, cancel := r.attempt()
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, r.patience)
	defer cancel()
	switch err := first.cache.Wait(ctx); {
	case err == nil:
		r.learnFill(ctx, first)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		klog.InfoS("A watch cache is not filled yet and refuses lists with selectors: look for objects that cannot be read or a slow etcd", "prefix", first.prefix)
	}
	return nil
}

// enterForGet is enterFilled for a GET with a resourceVersion. One without goes to etcd and
// starts no cache: for it there may be none.
func (r *rotation) enterForGet(ctx context.Context, resourceVersion string) (*generation, error) {
	if resourceVersion == "" {
		return r.enter(), nil
	}
	return r.enterFilled(ctx)
}

// direct returns what answers a call that needs no cache. The caller calls done.
func (r *rotation) direct() (s storage.Interface, done func()) {
	if g := r.enter(); g != nil {
		return g.delegator, g.calls.Done
	}
	return r.uncached.store, func() {}
}
