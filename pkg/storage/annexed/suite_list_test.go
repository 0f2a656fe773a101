// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/features"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/component-base/featuregate"
)

// checkListCalls returns a check of what a list cost: uncached, how many objects
// were read and in how many pages; cached, that etcd was not read at all.
func checkListCalls(s *stack) storagetesting.CallsValidation {
	transformer := s.transformer.current().(*storagetesting.PrefixTransformer)
	return func(t *testing.T, pageSize, wantObjects uint64) {
		t.Helper()
		if s.mode == cached {
			return
		}
		if got := transformer.GetReadsAndReset(); got != wantObjects {
			t.Errorf("read %d objects, want %d", got, wantObjects)
		}
		want := pagesFor(pageSize, wantObjects)
		if got := s.kvRecorder().GetReadsAndReset() + s.kvRecorder().GetStreamReadsAndReset(); got != want {
			t.Errorf("read %d pages, want %d", got, want)
		}
	}
}

// pagesFor computes how many pages the etcd3 store asks for: it doubles the page
// size after every page that did not fill the list.
func pagesFor(pageSize, objects uint64) uint64 {
	const maxPageSize = 10000
	pages := uint64(1)
	if pageSize == 0 {
		return pages
	}
	for read, page := uint64(1), pageSize; read < objects; pages++ {
		page = min(2*page, maxPageSize)
		read += page
	}
	return pages
}

func listSuites() map[string]suite {
	// A cache that the first of its lists starts has seen what the others wrote.
	lateCache := map[mode]string{lazily: "wants to see a cache that is behind"}
	withSnapshots := map[featuregate.Feature]bool{features.ListFromCacheSnapshot: true}
	withoutSnapshots := map[featuregate.Feature]bool{features.ListFromCacheSnapshot: false}
	indexed := func(*testing.T) stackOptions { return stackOptions{indexed: true} }
	return map[string]suite{
		"RunTestList/snapshots": {gates: withSnapshots, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestList(ctx, t, s, s.compact, s.mode == cached, s.kubernetesRecorder())
		}},
		"RunTestList/no snapshots": {gates: withoutSnapshots, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestList(ctx, t, s, s.compact, s.mode == cached, s.kubernetesRecorder())
		}},
		"RunTestConsistentList/snapshots": {gates: withSnapshots, notOn: lateCache, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestConsistentList(ctx, t, s, s.increaseRevision, s.mode == cached, true, s.mode == cached)
		}},
		"RunTestConsistentList/no snapshots": {gates: withoutSnapshots, notOn: lateCache, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestConsistentList(ctx, t, s, s.increaseRevision, s.mode == cached, true, false)
		}},
		"RunTestGetListNonRecursive/snapshots": {gates: withSnapshots, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestGetListNonRecursive(ctx, t, s.increaseRevision, s)
		}},
		"RunTestGetListNonRecursive/no snapshots": {gates: withoutSnapshots, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestGetListNonRecursive(ctx, t, s.increaseRevision, s)
		}},
		"RunTestCompactRevision": {gates: withSnapshots, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestCompactRevision(ctx, t, s, s.increaseRevision, s.compact)
		}},
		"RunTestGetListRecursivePrefix": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestGetListRecursivePrefix(ctx, t, s)
		}},
		"RunTestListPaging": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestListPaging(ctx, t, s)
		}},
		"RunTestListContinuation": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestListContinuation(ctx, t, s, checkListCalls(s))
		}},
		// With snapshots the reading of the compaction key counts as a page.
		"RunTestListPaginationRareObject": {gates: withoutSnapshots, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestListPaginationRareObject(ctx, t, s, checkListCalls(s))
		}},
		"RunTestListContinuationWithFilter": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestListContinuationWithFilter(ctx, t, s, checkListCalls(s))
		}},
		"RunTestListInconsistentContinuation": {
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestListInconsistentContinuation(ctx, t, s, s.compact)
			},
			notOn: map[mode]string{
				cached: "the test pages through a list at resourceVersion 0, for which the cache ignores the limit",
			},
		},
		"RunTestListResourceVersionMatch": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestListResourceVersionMatch(ctx, t, s)
		}},
		"RunTestNamespaceScopedList": {options: indexed, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestNamespaceScopedList(ctx, t, s)
		}},
	}
}
