// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubeannex/annex/pkg/storage/compact"
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
		config := cacher.Config{
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
		}
		kind, err := cfg.compacted(&config)
		if err != nil {
			return nil, func() {}, err
		}
		decoding := *storageConfig
		decoding.Codec = config.Codec
		raw, destroyRaw, err := generic.NewRawStorage(&decoding, config.NewFunc, config.NewListFunc, resourcePrefix)
		if err != nil {
			return nil, func() {}, fmt.Errorf("opening etcd storage of %s: %w", storageConfig.GroupResource, err)
		}
		return assemble(raw, destroyRaw, cfg, config, kind)
	}
}

// compacted makes the objects of a cache compact ones. It returns nil where they are not to be.
func (c Config) compacted(config *cacher.Config) (*compact.Kind, error) {
	if !c.Compact || !c.WatchCache {
		return nil, nil //nolint:nilnil // the objects are as the registry has them
	}
	kind, err := compact.NewKind(config.NewFunc, config.GetAttrsFunc, compact.Unstructured{})
	if err != nil {
		return nil, fmt.Errorf("preparing the compact cache of %s: %w", config.GroupResource, err)
	}
	kind.Apply(config)
	return kind, nil
}

// assemble builds the layers above raw. It owns raw: the returned destroy
// function closes it, and so does assemble itself when it fails. The destroy
// function may be called any number of times, as subresources share a storage.
// cacherConfig.Storage is set here. kind is that of raw's objects if they are compact, or nil.
func assemble(
	raw storage.Interface, destroyRaw factory.DestroyFunc, cfg Config, cacherConfig cacher.Config, kind *compact.Kind,
) (storage.Interface, factory.DestroyFunc, error) {
	front := func(inner storage.Interface) storage.Interface { return &store{inner: inner} }
	if kind != nil {
		raw = compact.NewBack(raw, kind)
		front = func(inner storage.Interface) storage.Interface { return &store{inner: compact.NewFront(inner, kind)} }
	}
	counts := cfg.Metrics.forResource(cacherConfig.GroupResource)
	delegated := &countingStore{store: raw, counts: counts, callerOf: callerOfDelegated}
	if !cfg.WatchCache {
		reads := newUncachedReads(delegated, cacherConfig.ResourcePrefix, RuleNoCache)
		return front(&rotation{uncached: reads}), sync.OnceFunc(destroyRaw), nil
	}

	gauge, hide := cfg.Metrics.showCaches(cacherConfig.GroupResource, versionOf(cacherConfig))
	caches := &caches{raw: raw, delegated: delegated, counts: counts, metrics: cfg.Metrics, gauge: gauge, config: cacherConfig, onEnd: cfg.Ended}
	ctx, cancel := context.WithCancel(context.Background())
	rotation := newRotation(ctx, cfg.turns, caches.open, caches.fresh)
	if cfg.queue != nil {
		rotation.queue = cfg.queue
	}
	rotation.lazy, rotation.uncached = cfg.Lazy, newUncachedReads(delegated, cacherConfig.ResourcePrefix, RuleNotStarted)
	caches.estimate = sync.OnceValue(func() error { return raw.EnableResourceSizeEstimation(rotation.keys) })
	unfollow := func() {}
	if cfg.Indexes != nil {
		unfollow = cfg.Indexes.Follow(cacherConfig.GroupResource, cacherConfig.NewFunc(), rotation.declare)
	}
	uncatalog := func() {}
	if cfg.Catalog != nil {
		uncatalog = cfg.Catalog.add(cacherConfig.GroupResource.WithVersion(versionOf(cacherConfig)), rotation)
	}
	destroy := sync.OnceFunc(func() {
		uncatalog()
		unfollow()
		cancel()
		rotation.stop()
		hide()
		destroyRaw()
	})
	if cfg.Lazy {
		rotation.learnBirth(caches.own())
		return front(rotation), destroy, nil
	}
	if _, err := rotation.openFirst(); err != nil {
		destroy()
		return nil, func() {}, fmt.Errorf("building the watch cache of %s: %w", cacherConfig.GroupResource, err)
	}
	return front(rotation), destroy, nil
}

// caches opens the watch caches of one resource, one after another, over one etcd3 store.
type caches struct {
	raw       storage.Interface
	delegated storage.Interface
	counts    *resourceCounts
	metrics   *Metrics
	gauge     *cacheGauge
	config    cacher.Config
	// onEnd is told when a cache has ended, unless it is nil.
	onEnd func(schema.GroupResource)
	// estimate makes raw estimate sizes from the keys of the cache in service. Upstream
	// asks for it before the first cache reads: a list or watch that begins before is
	// left out of the estimate.
	estimate func() error
}

func (c *caches) open(declared Indexes) (*generation, error) {
	config := c.config
	ended, end := context.WithCancel(context.Background())
	g := &generation{
		prefix:  strings.TrimSuffix(config.ResourcePrefix, "/") + "/",
		keyFunc: config.KeyFunc,
		newList: config.NewListFunc,
		etcd:    c.own(),
		onEnd:   func(call func()) func() bool { return context.AfterFunc(ended, call) },
		end:     end,
	}
	g.source = newSource(&countingStore{
		store: c.raw, counts: c.counts, callerOf: callerOfCache,
		estimate: func(keys storage.KeysFunc) error {
			g.keys = keys
			return c.estimate()
		},
	})
	config.Storage = g.source
	var dropped []string
	g.indexes, dropped = newIndexSet(declared, config.GetAttrsFunc, config.NewFunc())
	if len(dropped) > 0 {
		klog.InfoS("Too many indexes are declared for a resource; name fewer label keys", "resource", config.GroupResource, "limit", MaxIndexes, "notIndexed", dropped)
	}
	g.indexes.apply(&config)
	var err error
	if g.cache, err = cacher.NewCacherFromConfig(config); err != nil {
		return nil, err
	}
	g.delegator = cacher.NewCacheDelegator(g.cache, c.delegated)
	hideIndexes, closed := c.metrics.showIndexes(config.GroupResource, versionOf(config), g.indexes), c.gauge.opened(ended, g.cache.Wait)
	g.hide = func() {
		hideIndexes()
		closed()
		if c.onEnd != nil {
			c.onEnd(config.GroupResource)
		}
	}
	return g, nil
}

// versionOf is the version of the objects of a storage as clients see them, empty for a
// storage of internal objects.
func versionOf(config cacher.Config) string {
	return config.NewFunc().GetObjectKind().GroupVersionKind().Version
}

func (c *caches) fresh(ctx context.Context, g *generation) error {
	return g.waitFresh(ctx, c.own())
}

// own is the etcd3 store for the caches' own sake.
func (c *caches) own() storage.Interface {
	return &countingStore{store: c.raw, counts: c.counts, callerOf: callerOfCache}
}
