// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// TrustError is why a server does not know yet whom to trust.
type TrustError struct {
	// Reason is meant for the operator, clients are not told.
	Reason error
	// Metrics counts the requests that are refused for it. Nil counts nothing.
	Metrics *Metrics
}

var _ error = &TrustError{}

// Error returns the message of the reason.
func (e *TrustError) Error() string { return e.Reason.Error() }

// Unwrap returns the reason.
func (e *TrustError) Unwrap() error { return e.Reason }

// WithTrust answers 503 until trusted returns nil: before the server knows whose
// certificates prove who a client is, it would take everybody for anonymous and
// answer 403, which clients do not try again. Health checks, which may be asked
// anonymously, and the server's own requests pass. It belongs behind WithLoopback
// and before authentication. serializer encodes the refusals, which are counted where
// trusted returns a TrustError.
//
// A refusal ends the connection: a client that has sent no certificate by it may
// choose one in the next handshake, which names those that are accepted.
func WithTrust(inner http.Handler, trusted func() error, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		reason := trusted()
		if reason == nil || isHealthCheck(req.URL.Path) || notedLoopback(req.Context()) {
			inner.ServeHTTP(w, req)
			return
		}
		if cause, ok := errors.AsType[*TrustError](reason); ok {
			cause.Metrics.refused("", untrusting)
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
