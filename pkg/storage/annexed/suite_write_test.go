// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiserver/pkg/features"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/component-base/featuregate"
)

func writeSuites() map[string]suite {
	// No lease of etcd is shorter than one and a half election timeouts.
	longLeases := func(*testing.T) stackOptions {
		return stackOptions{etcd: func(etcd *embed.Config) { etcd.TickMs, etcd.ElectionMs = 100, 3000 }}
	}
	return map[string]suite{
		"RunTestCreate": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestCreate(ctx, t, s, s.checkStoredObject)
		}},
		"RunTestCreateWithTTL": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestCreateWithTTL(ctx, t, s)
		}},
		"RunTestCreateWithKeyExist": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestCreateWithKeyExist(ctx, t, s)
		}},
		// The object that is read lives for a second, the shortest lease; where
		// tests run one at a time, a case that takes three seconds comes first.
		"RunTestGet": {options: longLeases, run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestGet(ctx, t, s)
		}},
		"RunTestKeySchema": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestKeySchema(ctx, t, s)
		}},
		"RunTestUnconditionalDelete": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestUnconditionalDelete(ctx, t, s)
		}},
		"RunTestConditionalDelete": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestConditionalDelete(ctx, t, s)
		}},
		"RunTestDeleteWithSuggestion": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestDeleteWithSuggestion(ctx, t, s)
		}},
		"RunTestDeleteWithSuggestionAndConflict": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestDeleteWithSuggestionAndConflict(ctx, t, s)
		}},
		"RunTestDeleteWithSuggestionOfDeletedObject": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestDeleteWithSuggestionOfDeletedObject(ctx, t, s)
		}},
		"RunTestDeleteWithConflict": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestDeleteWithConflict(ctx, t, s)
		}},
		"RunTestValidateDeletionWithSuggestion": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestValidateDeletionWithSuggestion(ctx, t, s)
		}},
		"RunTestValidateDeletionWithOnlySuggestionValid": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestValidateDeletionWithOnlySuggestionValid(ctx, t, s)
		}},
		"RunTestPreconditionalDeleteWithSuggestion": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestPreconditionalDeleteWithSuggestion(ctx, t, s)
		}},
		"RunTestPreconditionalDeleteWithOnlySuggestionPass": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass(ctx, t, s)
		}},
		"RunTestGuaranteedUpdate": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestGuaranteedUpdate(ctx, t, s, s.checkStoredObject)
		}},
		"RunTestGuaranteedUpdateWithTTL": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestGuaranteedUpdateWithTTL(ctx, t, s)
		}},
		"RunTestGuaranteedUpdateChecksStoredData": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestGuaranteedUpdateChecksStoredData(ctx, t, s)
		}},
		"RunTestGuaranteedUpdateWithConflict": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestGuaranteedUpdateWithConflict(ctx, t, s)
		}},
		"RunTestGuaranteedUpdateWithSuggestionAndConflict": {run: func(ctx context.Context, t *testing.T, s *stack) {
			storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict(ctx, t, s)
		}},
	}
}

func statsSuites() map[string]suite {
	return map[string]suite{
		"RunTestStats/estimated": {
			gates: map[featuregate.Feature]bool{features.SizeBasedListCostEstimate: true},
			run: func(ctx context.Context, t *testing.T, s *stack) {
				if s.mode == uncached {
					// The cache hands its keys to the store; without it nobody
					// does and sizes are not estimated.
					storagetesting.RunTestStats(ctx, t, s, s.codec, s.transformer, false)
					return
				}
				storagetesting.RunTestStats(ctx, t, s, s.codec, s.transformer, true)
			},
		},
		"RunTestStats/counted": {
			gates: map[featuregate.Feature]bool{features.SizeBasedListCostEstimate: false},
			run: func(ctx context.Context, t *testing.T, s *stack) {
				storagetesting.RunTestStats(ctx, t, s, s.codec, s.transformer, false)
			},
		},
	}
}
