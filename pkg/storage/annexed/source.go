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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

var _ storage.Interface = &source{}

// source is what one Cacher reads from. It can be cut off while the Cacher lives.
//
// Cacher.Stop must not be called while its reflector has events. The reflector hands
// them to the dispatcher without looking at anything else, the dispatcher
// ends at once, and Stop and the watches wait for the reflector
// (k8s.io/apiserver pkg/storage/cacher/cacher.go, processEvent, dispatchEvents, Stop).
type source struct {
	store storage.Interface
	// join returns a context that also ends when end is called.
	join func(context.Context) (context.Context, context.CancelFunc)
	// end ends the lists under way. Nobody waits for them: they may go on after Cacher.Stop.
	end context.CancelFunc
	// onFailure calls a function in a goroutine of its own once an attempt to read
	// everything has failed, unless the function that it returns was called before. A
	// watch that breaks off is none yet: the reflector lists then.
	onFailure func(func()) func() bool
	fail      context.CancelFunc
	// unreadable says that the last list has met an object that cannot be read.
	unreadable atomic.Bool

	lock  sync.Mutex
	isCut bool
	// open are the watches that may have events for the Cacher.
	open map[*sourceWatch]struct{}
	// quiet is closed when the source is cut and no watch is open.
	quiet chan struct{}
}

func newSource(store storage.Interface) *source {
	ended, end := context.WithCancel(context.Background())
	failed, fail := context.WithCancel(context.Background())
	return &source{
		store: store, end: end, fail: fail,
		onFailure: func(call func()) func() bool { return context.AfterFunc(failed, call) },
		open:      map[*sourceWatch]struct{}{}, quiet: make(chan struct{}),
		join: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			release := context.AfterFunc(ended, cancel)
			return ctx, func() { release(); cancel() }
		},
	}
}

// cut ends the watches and waits until the Cacher has taken in what they had, but
// not longer than patience. It reports whether the Cacher has.
func (s *source) cut(patience time.Duration) bool {
	s.lock.Lock()
	s.isCut = true
	for w := range s.open {
		w.Interface.Stop()
	}
	s.closeIfQuietLocked()
	s.lock.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.quiet:
		return true
	case <-timer.C:
		return false
	}
}

func (s *source) closeIfQuietLocked() {
	if s.isCut && len(s.open) == 0 {
		close(s.quiet)
	}
}

// Watch implements storage.Interface. After cut it returns a watch without events.
func (s *source) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if s.wasCut() {
		return silentWatch{}, nil
	}
	watched, err := s.store.Watch(ctx, key, opts)
	if err != nil {
		s.fail()
		return nil, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.isCut {
		watched.Stop()
		return silentWatch{}, nil
	}
	w := &sourceWatch{Interface: watched, source: s}
	s.open[w] = struct{}{}
	return w, nil
}

func (s *source) wasCut() bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.isCut
}

// GetList implements storage.Interface.
func (s *source) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	ctx, cancel := s.join(ctx)
	defer cancel()
	err := s.store.GetList(ctx, key, opts, listObj)
	s.unreadable.Store(apierrors.IsStoreReadError(err) || storage.IsCorruptObject(err))
	if err != nil {
		s.fail()
	}
	return err
}

// Versioner implements storage.Interface.
func (s *source) Versioner() storage.Versioner { return s.store.Versioner() }

// Create implements storage.Interface.
func (s *source) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return s.store.Create(ctx, key, obj, out, ttl)
}

// Delete implements storage.Interface.
func (s *source) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, cachedExistingObject runtime.Object, opts storage.DeleteOptions,
) error {
	return s.store.Delete(ctx, key, out, preconditions, validateDeletion, cachedExistingObject, opts)
}

// Get implements storage.Interface.
func (s *source) Get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	return s.store.Get(ctx, key, opts, objPtr)
}

// GuaranteedUpdate implements storage.Interface.
func (s *source) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object,
) error {
	return s.store.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cachedExistingObject)
}

// Stats implements storage.Interface.
func (s *source) Stats(ctx context.Context) (storage.Stats, error) { return s.store.Stats(ctx) }

// ReadinessCheck implements storage.Interface.
func (s *source) ReadinessCheck() error { return s.store.ReadinessCheck() }

// RequestWatchProgress implements storage.Interface.
func (s *source) RequestWatchProgress(ctx context.Context) error {
	return s.store.RequestWatchProgress(ctx)
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *source) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	return s.store.GetCurrentResourceVersion(ctx)
}

// EnableResourceSizeEstimation implements storage.Interface.
func (s *source) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	return s.store.EnableResourceSizeEstimation(keys)
}

// CompactRevision implements storage.Interface.
func (s *source) CompactRevision() int64 { return s.store.CompactRevision() }

// sourceWatch knows when the reflector has done with it: whatever the end, the
// reflector calls Stop after the last event (k8s.io/client-go
// tools/cache/reflector.go, handleAnyWatch).
type sourceWatch struct {
	watch.Interface
	source *source
}

// Stop implements watch.Interface.
func (w *sourceWatch) Stop() {
	w.Interface.Stop()
	w.source.lock.Lock()
	defer w.source.lock.Unlock()
	if _, ok := w.source.open[w]; ok {
		delete(w.source.open, w)
		w.source.closeIfQuietLocked()
	}
}

var _ watch.Interface = silentWatch{}

// silentWatch has no events and does not end. An error in its place would be
// logged and let the reflector begin again.
type silentWatch struct{}

// Stop implements watch.Interface.
func (silentWatch) Stop() {}

// ResultChan implements watch.Interface.
func (silentWatch) ResultChan() <-chan watch.Event { return nil }
