// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/component-base/featuregate"
)

const readsFromCache = "the test makes reading from etcd fail, which a cache that is already filled does not notice"

// corruptError returns the error by which the etcd3 store recognises an object
// that cannot be read. Its type is not exported; the transformer that makes it is.
func corruptError(t *testing.T) error {
	t.Helper()
	transformer := newSteeredTransformer()
	transformer.setFailing(true)
	_, _, err := etcd3.WithCorruptObjErrorHandlingTransformer(transformer).TransformFromStorage(t.Context(), nil, value.DefaultContext{})
	if err == nil {
		t.Fatal("got no error from a failing transformer")
	}
	return err
}

// corruptionSuites are about objects that cannot be transformed or decoded.
func corruptionSuites() map[string]suite {
	unsafeDeletion := map[featuregate.Feature]bool{features.AllowUnsafeMalformedObjectDeletion: true}
	return map[string]suite{
		"RunTestTransformationFailure": {
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestTransformationFailure(ctx, t, s)
			},
			notOn: map[mode]string{
				cached: "the test exchanges the transformer for one write; when the cache's watch reads the object within that time, the cache holds it in good order",
			},
		},
		"RunTestGetListWithErrorAggregation": {
			gates: unsafeDeletion,
			options: func(*testing.T) stackOptions {
				return stackOptions{unsafeDeletion: true}
			},
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestGetListWithErrorAggregation(ctx, t, s, corruptError(t))
			},
			notOn: map[mode]string{cached: readsFromCache},
		},
		"RunTestGetListWithoutErrorAggregation": {
			gates: map[featuregate.Feature]bool{features.AllowUnsafeMalformedObjectDeletion: false},
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestGetListWithoutErrorAggregation(ctx, t, s, corruptError(t))
			},
			notOn: map[mode]string{cached: readsFromCache},
		},
		"RunTestWatchError": {
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestWatchError(ctx, t, s)
			},
			notOn: map[mode]string{cached: readsFromCache},
		},
		"RunTestWatchWithUnsafeDelete": {
			gates: unsafeDeletion,
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestWatchWithUnsafeDelete(ctx, t, s, corruptError(t))
			},
			notOn: map[mode]string{
				cached: "the error event reaches the watch of the cache, not the watches that clients have on the cache",
			},
		},
		"RunWatchErrorIsBlockingFurtherEvents": {
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunWatchErrorIsBlockingFurtherEvents(ctx, t, s)
			},
			notOn: map[mode]string{cached: readsFromCache},
		},
	}
}

// corruptDeletionSuites are about deleting such objects.
func corruptDeletionSuites() map[string]suite {
	unsafeDeletion := map[featuregate.Feature]bool{features.AllowUnsafeMalformedObjectDeletion: true}
	return map[string]suite{
		"RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError": {
			gates: unsafeDeletion,
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError(ctx, t, s, s.transformer.setFailing)
			},
		},
		"RunTestDeleteExpectedTransformOrDecodeError/transform": {
			gates: unsafeDeletion,
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, s, s.transformer.setFailing)
			},
		},
		"RunTestDeleteExpectedTransformOrDecodeError/decode": {
			gates: unsafeDeletion,
			options: func(t *testing.T) stackOptions {
				etcd3.TestOnlySetFatalOnDecodeError(t, false)
				return stackOptions{codec: &steeredCodec{Codec: newTestCodec(t)}}
			},
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, s, s.codec.(*steeredCodec).setFailing)
			},
		},
		"RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError": {
			gates: unsafeDeletion,
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(ctx, t, s)
			},
		},
	}
}
