// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

var _ storage.Interface = &store{}

// store is the outermost layer, the one that the registry calls. It tells the
// layers below on whose behalf a call is made and otherwise passes everything
// on, errors included, as it is.
//
// Every method is written out: a method that upstream adds to storage.Interface
// must stop the build here, not slip past this layer.
type store struct {
	inner storage.Interface
}

// Versioner implements storage.Interface.
func (s *store) Versioner() storage.Versioner {
	return s.inner.Versioner()
}

// Create implements storage.Interface.
func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return s.inner.Create(withCaller(ctx, CallerClient), key, obj, out, ttl)
}

// Delete implements storage.Interface.
func (s *store) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, cachedExistingObject runtime.Object, opts storage.DeleteOptions,
) error {
	return s.inner.Delete(withCaller(ctx, CallerClient), key, out, preconditions, validateDeletion, cachedExistingObject, opts)
}

// Watch implements storage.Interface.
func (s *store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.inner.Watch(withCaller(ctx, CallerClient), key, opts)
}

// Get implements storage.Interface.
func (s *store) Get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	return s.inner.Get(withCaller(ctx, CallerClient), key, opts, objPtr)
}

// GetList implements storage.Interface.
func (s *store) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	return s.inner.GetList(withCaller(ctx, CallerClient), key, opts, listObj)
}

// GuaranteedUpdate implements storage.Interface.
func (s *store) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object,
) error {
	return s.inner.GuaranteedUpdate(withCaller(ctx, CallerClient), key, destination, ignoreNotFound, preconditions, tryUpdate, cachedExistingObject)
}

// Stats implements storage.Interface. The registry polls it for its object
// count metric, so it does not count as a client's request.
func (s *store) Stats(ctx context.Context) (storage.Stats, error) {
	return s.inner.Stats(withCaller(ctx, CallerMonitor))
}

// ReadinessCheck implements storage.Interface.
func (s *store) ReadinessCheck() error {
	return s.inner.ReadinessCheck()
}

// RequestWatchProgress implements storage.Interface.
func (s *store) RequestWatchProgress(ctx context.Context) error {
	return s.inner.RequestWatchProgress(withCaller(ctx, CallerClient))
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *store) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	return s.inner.GetCurrentResourceVersion(withCaller(ctx, CallerClient))
}

// EnableResourceSizeEstimation implements storage.Interface.
func (s *store) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	return s.inner.EnableResourceSizeEstimation(keys)
}

// CompactRevision implements storage.Interface.
func (s *store) CompactRevision() int64 {
	return s.inner.CompactRevision()
}
