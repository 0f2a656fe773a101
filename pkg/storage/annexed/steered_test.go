// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/utils/clock"
)

// steeredStore is the etcd3 store, except that a test can end its open watches
// the way etcd does when their revision was compacted away.
type steeredStore struct {
	storage.Interface

	watches atomic.Int64

	lock sync.Mutex
	open []*expiringWatch
}

func (s *steeredStore) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	inner, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	w := &expiringWatch{inner: inner, result: make(chan watch.Event), expired: make(chan struct{}), stopped: make(chan struct{})}
	go w.run()
	s.lock.Lock()
	s.open = append(s.open, w)
	s.lock.Unlock()
	s.watches.Add(1)
	return w, nil
}

func (s *steeredStore) expireWatches() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, w := range s.open {
		close(w.expired)
	}
	s.open = nil
}

type expiringWatch struct {
	inner    watch.Interface
	result   chan watch.Event
	expired  chan struct{}
	stopped  chan struct{}
	stopOnce sync.Once
}

func (w *expiringWatch) ResultChan() <-chan watch.Event { return w.result }

func (w *expiringWatch) Stop() { w.stopOnce.Do(func() { close(w.stopped) }) }

func (w *expiringWatch) run() {
	defer close(w.result)
	defer w.inner.Stop()
	for {
		var event watch.Event
		ok := true
		select {
		case event, ok = <-w.inner.ResultChan():
		case <-w.expired:
			event = watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("compacted").ErrStatus}
		case <-w.stopped:
			return
		}
		if !ok {
			return
		}
		select {
		case w.result <- event:
		case <-w.stopped:
			return
		}
	}
}

// steeredTransformer is a value.Transformer that tests exchange while the store
// that uses it is running.
type steeredTransformer struct {
	inner   atomic.Pointer[value.Transformer]
	failing atomic.Bool
	held    atomic.Pointer[chan struct{}]
}

var _ value.Transformer = &steeredTransformer{}

func newSteeredTransformer() *steeredTransformer {
	t := &steeredTransformer{}
	t.replace(storagetesting.NewPrefixTransformer([]byte(dataPrefix), false))
	return t
}

func (t *steeredTransformer) current() value.Transformer { return *t.inner.Load() }

func (t *steeredTransformer) setFailing(failing bool) { t.failing.Store(failing) }

// hold lets reads wait until release is called.
func (t *steeredTransformer) hold() (release func()) {
	held := make(chan struct{})
	t.held.Store(&held)
	return func() { close(held) }
}

// replace returns a function that undoes it.
func (t *steeredTransformer) replace(next value.Transformer) func() {
	previous := t.inner.Swap(&next)
	return func() { t.inner.Store(previous) }
}

func (t *steeredTransformer) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	if held := t.held.Load(); held != nil {
		select {
		case <-*held:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	if t.failing.Load() {
		return nil, false, errSynthetic
	}
	return t.current().TransformFromStorage(ctx, data, dataCtx)
}

func (t *steeredTransformer) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	return t.current().TransformToStorage(ctx, data, dataCtx)
}

// steeredCodec can be made to fail at decoding.
type steeredCodec struct {
	runtime.Codec
	failing atomic.Bool
}

func (c *steeredCodec) setFailing(failing bool) { c.failing.Store(failing) }

func (c *steeredCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if c.failing.Load() {
		return nil, nil, errSynthetic
	}
	return c.Codec.Decode(data, defaults, into)
}

// quickClock is the real clock, except that the cache looks for compactions
// (every 15 s, k8s.io/apiserver/pkg/storage/cacher/compactor.go) without delay.
type quickClock struct{ clock.RealClock }

var _ clock.WithTicker = quickClock{}

func (c quickClock) NewTimer(d time.Duration) clock.Timer {
	return quickTimer{c.RealClock.NewTimer(quick(d))}
}

type quickTimer struct{ clock.Timer }

func (t quickTimer) Reset(d time.Duration) bool { return t.Timer.Reset(quick(d)) }

func quick(d time.Duration) time.Duration {
	const compactorPollPeriod = 15 * time.Second
	if d == compactorPollPeriod {
		return 10 * time.Millisecond
	}
	return d
}
