// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/subtle"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

type loopbackKey struct{}

// WithLoopback notes which requests the server sends to itself: those with the
// token of its own client, which is made anew in every process and never leaves it
// (k8s.io/apiserver pkg/server/options/serving_with_loopback.go). It belongs before
// authentication, which removes the token. Without a token nothing is noted.
func WithLoopback(inner http.Handler, token string) http.Handler {
	if token == "" {
		return inner
	}
	own := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if subtle.ConstantTimeCompare([]byte(req.Header.Get("Authorization")), own) == 1 {
			req = req.WithContext(context.WithValue(req.Context(), loopbackKey{}, true))
		}
		inner.ServeHTTP(w, req)
	})
}

// IsLoopback reports whether the server itself has sent a request, under its own
// name. The name alone proves nothing: kube-apiserver asks for its policies'
// parameters under the same one, through the front proxy, and a certificate may
// carry it. It needs WithLoopback before authentication.
func IsLoopback(ctx context.Context) bool {
	requester, ok := genericapirequest.UserFrom(ctx)
	return ok && requester.GetName() == user.APIServerUser && notedLoopback(ctx)
}

func notedLoopback(ctx context.Context) bool {
	noted, ok := ctx.Value(loopbackKey{}).(bool)
	return ok && noted
}
