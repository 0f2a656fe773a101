// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// WithTrust answers 503 until trusted returns nil: before the server knows whose
// certificates prove who a client is, it would take everybody for anonymous and
// answer 403, which clients do not try again. Health checks, which may be asked
// anonymously, and the server's own requests pass. It belongs behind WithLoopback
// and before authentication. serializer encodes the refusals.
//
// A refusal ends the connection: in the handshake of a new one the client is told
// which certificates are accepted.
func WithTrust(inner http.Handler, trusted func() error, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if trusted() == nil || isHealthCheck(req.URL.Path) || notedLoopback(req.Context()) {
			inner.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Connection", "close")
		err := unavailable("nobody can be authenticated yet: the server has not read the authentication settings of the cluster")
		responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{}, w, req)
	})
}

func isHealthCheck(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"healthz", "livez", "readyz"}, first)
}
