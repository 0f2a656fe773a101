// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// nothing is a storage that costs nothing.
type nothing struct {
	storage.Interface
}

func (nothing) Get(context.Context, string, storage.GetOptions, runtime.Object) error { return nil }

// BenchmarkLayers is what the two layers of this package add to a request that etcd answers.
func BenchmarkLayers(b *testing.B) {
	layers := &store{inner: &countingStore{store: nothing{}, counts: newResourceCounts(), callerOf: callerOfDelegated}}
	b.ReportAllocs()
	for b.Loop() {
		if err := layers.Get(b.Context(), "/gadgets/one", storage.GetOptions{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
