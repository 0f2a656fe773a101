// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fuzzer fills API objects with random values that survive a round trip.
package fuzzer

import (
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// Funcs returns the fuzz functions of the kubeannex.io types. The phase is never
// left empty, because decoding would default it and the round trip would differ.
func Funcs(_ serializer.CodecFactory) []any {
	return []any{
		func(status *kubeannex.AnnexedGroupStatus, c randfill.Continue) {
			c.FillNoCustom(status)
			if status.Phase == "" {
				status.Phase = kubeannex.PhasePending
			}
		},
	}
}
