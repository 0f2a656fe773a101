// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"time"

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
	predicate := storage.Everything
	predicate.Limit = sizeSample
	return g.etcd.GetList(withCaller(ctx, CallerMonitor), g.prefix, storage.ListOptions{Predicate: predicate, Recursive: true}, g.newList())
}
