// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
)

// sizeSample is the number of objects from whose sizes that of all is estimated when none is known.
const sizeSample = 25

// sizedStats are the statistics for the fairness of the server, which takes an object whose size is
// not known for the largest possible (k8s.io/apiserver
// pkg/util/flowcontrol/request/list_work_estimator.go, seatsBasedOnObjectSize). Upstream learns sizes from lists
// and events, so it knows none of a resource that has not changed since the server started.
func (g *generation) sizedStats(ctx context.Context) (storage.Stats, error) {
	stats, err := g.takeStats(ctx)
	if err != nil || stats.ObjectCount == 0 || stats.EstimatedAverageObjectSizeBytes > 0 || g.keys == nil {
		return stats, err
	}
	if err := g.readSome(ctx); err != nil {
		return stats, nil //nolint:nilerr // the count is right, and the size is asked for again
	}
	return g.takeStats(ctx)
}

// learnSize takes the statistics in the background, which the registry does not do before a minute is
// over, but not again within statsAge. It is called during a call of the generation.
func (g *generation) learnSize() {
	now, before := time.Now().UnixNano(), g.learning.Load()
	if now-before < int64(statsAge) || !g.learning.CompareAndSwap(before, now) {
		return
	}
	g.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), statsAge)
		defer cancel()
		if _, err := g.sizedStats(ctx); err != nil {
			klog.V(2).InfoS("The size of the objects is not known yet", "prefix", g.prefix, "err", err)
		}
	})
}

// readSome lets the etcd3 store see the sizes of some objects. It takes them from lists
// and later events, but not from the watch that fills a cache
// (k8s.io/apiserver pkg/storage/etcd3/watcher.go, sync).
func (g *generation) readSome(ctx context.Context) error {
	return listSome(ctx, g.etcd, g.prefix, g.newList())
}

// listSome lists the first objects of a storage.
func listSome(ctx context.Context, store storage.Interface, prefix string, listObj runtime.Object) error {
	predicate := storage.Everything
	predicate.Limit = sizeSample
	return store.GetList(withCaller(ctx, CallerMonitor), prefix, storage.ListOptions{Predicate: predicate, Recursive: true}, listObj)
}

// sizedStats are those of a storage without a cache, of which upstream counts the keys alone. newList makes
// an empty list of its objects.
func (u uncachedReads) sizedStats(ctx context.Context, newList func() runtime.Object) (storage.Stats, error) {
	stats, err := u.store.Stats(ctx)
	if err != nil || stats.ObjectCount == 0 || stats.EstimatedAverageObjectSizeBytes > 0 || newList == nil {
		return stats, err
	}
	list := newList()
	if err := listSome(ctx, u.store, u.prefix, list); err != nil {
		return stats, nil //nolint:nilerr // the count is right, and the size is asked for again
	}
	stats.EstimatedAverageObjectSizeBytes = averageSize(list)
	return stats, nil
}

// averageSize is that of the objects of a list as JSON, or 0 where it cannot be told.
func averageSize(listObj runtime.Object) int64 {
	var bytes, objects int64
	err := meta.EachListItem(listObj, func(object runtime.Object) error {
		encoded, err := json.Marshal(object)
		bytes, objects = bytes+int64(len(encoded)), objects+1
		return err
	})
	if err != nil || objects == 0 {
		return 0
	}
	return bytes / objects
}
