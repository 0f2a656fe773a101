// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// newDecorator returns the function that opens the storage of one resource. It
// differs from upstream's StorageWithCacher
// (k8s.io/apiserver/pkg/registry/generic/registry/storage_factory.go) in the
// two layers that this package adds and in leaving nothing open when it fails.
func newDecorator(cfg Config) generic.StorageDecorator {
	return func(
		storageConfig *storagebackend.ConfigForResource,
		resourcePrefix string,
		keyFunc func(obj runtime.Object) (string, error),
		newFunc func() runtime.Object,
		newListFunc func() runtime.Object,
		getAttrsFunc storage.AttrFunc,
		triggerFuncs storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		raw, destroyRaw, err := generic.NewRawStorage(storageConfig, newFunc, newListFunc, resourcePrefix)
		if err != nil {
			return nil, func() {}, fmt.Errorf("opening etcd storage of %s: %w", storageConfig.GroupResource, err)
		}
		return assemble(raw, destroyRaw, cfg, cacher.Config{
			Versioner:           storage.APIObjectVersioner{},
			GroupResource:       storageConfig.GroupResource,
			EventsHistoryWindow: storageConfig.EventsHistoryWindow,
			ResourcePrefix:      resourcePrefix,
			KeyFunc:             keyFunc,
			GetAttrsFunc:        getAttrsFunc,
			IndexerFuncs:        triggerFuncs,
			Indexers:            indexers,
			NewFunc:             newFunc,
			NewListFunc:         newListFunc,
			Codec:               storageConfig.Codec,
		})
	}
}

// assemble builds the layers above raw. It owns raw: the returned destroy
// function closes it, and so does assemble itself when it fails. The destroy
// function may be called any number of times, as subresources share a storage.
// cacherConfig.Storage is set here.
func assemble(raw storage.Interface, destroyRaw factory.DestroyFunc, cfg Config, cacherConfig cacher.Config) (storage.Interface, factory.DestroyFunc, error) {
	counts := cfg.Metrics.forResource(cacherConfig.GroupResource)
	delegated := &countingStore{store: raw, counts: counts, callerOf: callerOfDelegated}
	if !cfg.WatchCache {
		return &store{inner: delegated}, sync.OnceFunc(destroyRaw), nil
	}

	cacherConfig.Storage = &countingStore{store: raw, counts: counts, callerOf: callerOfCache}
	watchCache, err := cacher.NewCacherFromConfig(cacherConfig)
	if err != nil {
		destroyRaw()
		return nil, func() {}, fmt.Errorf("building the watch cache of %s: %w", cacherConfig.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(watchCache, delegated)
	destroy := func() {
		delegator.Stop()
		watchCache.Stop()
		destroyRaw()
	}
	return &store{inner: delegator}, sync.OnceFunc(destroy), nil
}
