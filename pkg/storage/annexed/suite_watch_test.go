// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

func watchSuites() map[string]suite {
	indexed := func(*testing.T) stackOptions { return stackOptions{indexed: true} }
	clusterScoped := func(*testing.T) stackOptions { return stackOptions{indexed: true, clusterScoped: true} }
	quickProgress := func(*testing.T) stackOptions {
		return stackOptions{etcd: func(etcd *embed.Config) { etcd.WatchProgressNotifyInterval = time.Second }}
	}
	return map[string]suite{
		"RunTestWatch": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestWatch(ctx, t, s)
		}},
		"RunTestWatchFromZero": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestWatchFromZero(ctx, t, s, s.compactAndRelist)
		}},
		"RunTestDeleteTriggerWatch": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestDeleteTriggerWatch(ctx, t, s)
		}},
		"RunTestWatchFromNonZero": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestWatchFromNonZero(ctx, t, s)
		}},
		"RunTestDelayedWatchDelivery": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestDelayedWatchDelivery(ctx, t, s)
		}},
		"RunTestWatchContextCancel": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestWatchContextCancel(ctx, t, s)
		}},
		"RunTestWatcherTimeout": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestWatcherTimeout(ctx, t, s)
		}},
		"RunTestWatchDeleteEventObjectHaveLatestRV": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV(ctx, t, s)
		}},
		"RunTestWatchInitializationSignal": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestWatchInitializationSignal(ctx, t, s)
		}},
		"RunTestClusterScopedWatch": {options: clusterScoped, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestClusterScopedWatch(ctx, t, s)
		}},
		"RunTestNamespaceScopedWatch": {options: indexed, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestNamespaceScopedWatch(ctx, t, s)
		}},
		"RunTestWatchDispatchBookmarkEvents": {options: quickProgress, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, s.mode == cached)
		}},
		"RunTestOptionalWatchBookmarksWithCorrectResourceVersion": {
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion(ctx, t, s)
			},
			notOn: map[mode]string{uncached: "bookmarks for clients are made by the watch cache"},
		},
		"RunOptionalTestProgressNotify": {
			options: quickProgress,
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunOptionalTestProgressNotify(ctx, t, s, s.increaseRevision)
			},
			notOn: map[mode]string{cached: "progress events are what the cache asks etcd for; it does not offer them itself"},
		},
		"RunSendInitialEventsBackwardCompatibility": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunSendInitialEventsBackwardCompatibility(ctx, t, s)
		}},
		"RunWatchSemantics": {alone: true, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunWatchSemantics(ctx, t, s.settled())
		}},
		"RunWatchSemanticInitialEventsExtended": {alone: true, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunWatchSemanticInitialEventsExtended(ctx, t, s.settled())
		}},
		"RunWatchListMatchSingle": {alone: true, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunWatchListMatchSingle(ctx, t, s.settled())
		}},
	}
}
