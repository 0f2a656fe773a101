// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// callerKey is the context key under which the decorator leaves the Caller.
type callerKey struct{}

func withCaller(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// callerOfDelegated names the caller of the view that the CacheDelegator (or,
// without a watch cache, the decorator) calls. Everything that came in through
// the decorator is marked. What is not comes from the delegator's own
// consistency checker, which is handed the same store
// (k8s.io/apiserver/pkg/storage/cacher/delegator.go, NewCacheDelegator).
func callerOfDelegated(ctx context.Context) Caller {
	if caller, ok := ctx.Value(callerKey{}).(Caller); ok {
		return caller
	}
	return CallerConsistencyCheck
}

// callerOfCache names the caller of the view that the Cacher calls. Its
// reflector, progress requester and size estimator run on contexts of their
// own; a marked context means that a request waits for the cache, which asks
// etcd for nothing but the current revision.
func callerOfCache(ctx context.Context) Caller {
	switch caller, _ := ctx.Value(callerKey{}).(Caller); caller {
	case CallerClient:
		return CallerConsistentRead
	case CallerMonitor:
		return CallerMonitor
	default:
		return CallerCache
	}
}

var _ storage.Interface = &countingStore{}

// countingStore counts the calls that reach the etcd3 store. Two of them, with
// different callerOf, share one store and one set of counts: the view of the
// Cacher and the view of the CacheDelegator.
//
// Neither of the two looks for optional interfaces on the storage it is given,
// except for IsWatchListSemanticsUnSupported (client-go/util/watchlist), which
// no upstream store has; so nothing is hidden by this layer.
// TestNoOptionalInterfaces guards that.
type countingStore struct {
	store    storage.Interface
	counts   *resourceCounts
	callerOf func(context.Context) Caller
	// estimate, if any, is called instead of the store's EnableResourceSizeEstimation,
	// which may be called only once while caches come and go.
	estimate func(storage.KeysFunc) error
}

func (c *countingStore) count(ctx context.Context, operation Operation) {
	c.counts.addRequest(c.callerOf(ctx), operation)
}

// Versioner implements storage.Interface. It is no request to etcd.
func (c *countingStore) Versioner() storage.Versioner {
	return c.store.Versioner()
}

// Create implements storage.Interface.
func (c *countingStore) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	c.count(ctx, OperationCreate)
	return c.store.Create(ctx, key, obj, out, ttl)
}

// Delete implements storage.Interface.
func (c *countingStore) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, cachedExistingObject runtime.Object, opts storage.DeleteOptions,
) error {
	c.count(ctx, OperationDelete)
	return c.store.Delete(ctx, key, out, preconditions, validateDeletion, cachedExistingObject, opts)
}

// Watch implements storage.Interface.
func (c *countingStore) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	c.count(ctx, OperationWatch)
	return c.store.Watch(ctx, key, opts)
}

// Get implements storage.Interface.
func (c *countingStore) Get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	c.count(ctx, OperationGet)
	noteEtcd(ctx)
	return c.store.Get(ctx, key, opts, objPtr)
}

// GetList implements storage.Interface. Besides the call it counts the objects
// that came back.
func (c *countingStore) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	c.count(ctx, OperationList)
	noteEtcd(ctx)
	err := c.store.GetList(ctx, key, opts, listObj)
	if err == nil {
		c.counts.addListed(c.callerOf(ctx), meta.LenList(listObj))
	}
	return err
}

// GuaranteedUpdate implements storage.Interface.
func (c *countingStore) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object,
) error {
	c.count(ctx, OperationUpdate)
	return c.store.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cachedExistingObject)
}

// Stats implements storage.Interface.
func (c *countingStore) Stats(ctx context.Context) (storage.Stats, error) {
	c.count(ctx, OperationStats)
	return c.store.Stats(ctx)
}

// ReadinessCheck implements storage.Interface. It is no request to etcd.
func (c *countingStore) ReadinessCheck() error {
	return c.store.ReadinessCheck()
}

// RequestWatchProgress implements storage.Interface.
func (c *countingStore) RequestWatchProgress(ctx context.Context) error {
	c.count(ctx, OperationWatchProgress)
	return c.store.RequestWatchProgress(ctx)
}

// GetCurrentResourceVersion implements storage.Interface.
func (c *countingStore) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	c.count(ctx, OperationCurrentResourceVersion)
	return c.store.GetCurrentResourceVersion(ctx)
}

// EnableResourceSizeEstimation implements storage.Interface. It is no request
// to etcd.
func (c *countingStore) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	if c.estimate != nil {
		return c.estimate(keys)
	}
	return c.store.EnableResourceSizeEstimation(keys)
}

// CompactRevision implements storage.Interface. The etcd3 store remembers the
// answer, so it is no request to etcd.
func (c *countingStore) CompactRevision() int64 {
	return c.store.CompactRevision()
}
