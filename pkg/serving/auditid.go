// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"net/http"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// WithOneAuditID leaves the Audit-ID out of answers to requests that WithFrontProxy has
// noted and that bring one: kube-apiserver, which sends it, adds the same ID to the answer itself
// and passes on all headers, so that clients would read it twice. It belongs between
// WithFrontProxy and upstream's handlers, of which the outermost sets the
// header (k8s.io/apiserver pkg/endpoints/filters/audit_init.go).
func WithOneAuditID(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if fromFrontProxy(req.Context()) && req.Header.Get(auditinternal.HeaderAuditID) != "" {
			w = responsewriter.WrapForHTTP1Or2(&withoutAuditID{w})
		}
		inner.ServeHTTP(w, req)
	})
}

// withoutAuditID removes the header when an answer begins.
type withoutAuditID struct{ http.ResponseWriter }

var _ responsewriter.UserProvidedDecorator = &withoutAuditID{}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *withoutAuditID) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *withoutAuditID) WriteHeader(code int) {
	w.Header().Del(auditinternal.HeaderAuditID)
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *withoutAuditID) Write(data []byte) (int, error) {
	w.Header().Del(auditinternal.HeaderAuditID)
	return w.ResponseWriter.Write(data)
}
