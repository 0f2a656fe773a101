// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"net/http"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// analysis is what a list needs of the request in which it is run.
type analysis struct {
	recorder *annexed.Recorder
	// agent is the user agent of the request around it.
	agent string
	// annotate adds to the audit event of the request around it.
	annotate func(verb string, reading annexed.Reading)
}

type (
	analysisKey struct{}
	agentKey    struct{}
)

// WithAnalysis returns the context of a list that is run in another request, whose
// context around is. A Handler counts it as it counts every list, under the user of
// its own context and the user agent of the request around it, and adds its
// annotations to the audit event of that as well. The Recorder has what was read afterwards.
func WithAnalysis(ctx, around context.Context) (context.Context, *annexed.Recorder) {
	ctx, recorder := annexed.WithRecorder(ctx)
	return context.WithValue(ctx, analysisKey{}, &analysis{
		recorder: recorder,
		agent:    AgentOf(around),
		annotate: func(verb string, reading annexed.Reading) { annotate(around, verb, reading) },
	}), recorder
}

// AgentOf is the user agent of a request in which a list may be run, one that
// creates a ListReview and has passed a Handler.
func AgentOf(around context.Context) string {
	agent, _ := around.Value(agentKey{}).(string)
	return agent
}

func analysisOf(ctx context.Context) *analysis {
	a, _ := ctx.Value(analysisKey{}).(*analysis)
	return a
}

// withAgent notes the user agent of a request in which a list may be run.
func withAgent(req *http.Request) *http.Request {
	info, ok := genericapirequest.RequestInfoFrom(req.Context())
	if !ok || info.Verb != "create" || info.APIGroup != kubeannex.GroupName || info.Resource != "listreviews" {
		return req
	}
	return req.WithContext(context.WithValue(req.Context(), agentKey{}, req.UserAgent()))
}
