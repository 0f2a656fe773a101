// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// analysis is what a list needs of the request in which it is run.
type analysis struct {
	recorder *annexed.Recorder
	// annotate adds to the audit event of the request around it.
	annotate func(verb string, reading annexed.Reading)
}

type analysisKey struct{}

// WithAnalysis returns the context of a list that is run in another request, whose
// context around is. A Handler counts it as it counts every list, and adds its
// annotations to the audit event of that request as well. The Recorder has what was read afterwards.
func WithAnalysis(ctx, around context.Context) (context.Context, *annexed.Recorder) {
	ctx, recorder := annexed.WithRecorder(ctx)
	return context.WithValue(ctx, analysisKey{}, &analysis{
		recorder: recorder,
		annotate: func(verb string, reading annexed.Reading) { annotate(around, verb, reading) },
	}), recorder
}

func analysisOf(ctx context.Context) *analysis {
	a, _ := ctx.Value(analysisKey{}).(*analysis)
	return a
}
