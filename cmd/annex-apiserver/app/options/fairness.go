// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net/http"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/kubeannex/annex/pkg/admission/hostapis"
	"github.com/kubeannex/annex/pkg/apiserver"
)

// handlerChain is how a server builds its filters.
type handlerChain = func(http.Handler, *genericapiserver.Config) http.Handler

// fallBackToLimits makes the server limit requests by --max-requests-inflight and
// --max-mutating-requests-inflight as long as the cluster has no flow schemas:
// fairness without them would treat everybody alike, leader elections and all, within
// the smallest of its levels.
func fallBackToLimits(config *apiserver.Config) {
	generic := &config.GenericConfig.Config
	if generic.FlowControl == nil {
		return
	}
	apis := config.ExtraConfig.HostAPIs
	generic.BuildHandlerChainFunc = withLimits(generic.BuildHandlerChainFunc, func() bool {
		return apis.Lacks(hostapis.PriorityAndFairness)
	})
}

// withLimits builds two chains, of which each request passes one. Filters keep no state
// that has to be shared, except for numbers of requests in flight.
func withLimits(build handlerChain, limited func() bool) handlerChain {
	return func(apiHandler http.Handler, config *genericapiserver.Config) http.Handler {
		fair := build(apiHandler, config)
		without := *config
		without.FlowControl = nil
		inFlight := build(apiHandler, &without)
		return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			if limited() {
				inFlight.ServeHTTP(w, request)
				return
			}
			fair.ServeHTTP(w, request)
		})
	}
}
