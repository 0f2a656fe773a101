// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
)

type frontProxyKey struct{}

// WithFrontProxy notes which requests name their user in one of the headers, as
// kube-apiserver does when it passes a request on. It belongs before
// authentication, which removes the headers of whoever it lets in
// (k8s.io/apiserver pkg/endpoints/filters/authentication.go).
//
// The note is not proof: a client may send the header itself. The gate does no
// more with it than to answer 503 where the answer were 404.
func WithFrontProxy(inner http.Handler, userHeaders headerrequest.StringSliceProvider) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for _, header := range userHeaders.Value() {
			if req.Header.Get(header) != "" {
				req = req.WithContext(context.WithValue(req.Context(), frontProxyKey{}, true))
				break
			}
		}
		inner.ServeHTTP(w, req)
	})
}

func fromFrontProxy(ctx context.Context) bool {
	noted, ok := ctx.Value(frontProxyKey{}).(bool)
	return ok && noted
}
