// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compactlist answers lists of custom resources with the bytes that compact watch caches have.
//
// The handler of upstream runs as ever, with all that is around the bytes: it refuses, waits,
// counts, traces and audits, and it writes the list. But the storage has left the items
// out (compact.Answer), and where upstream writes none, this package writes them. What it
// cannot write so, it lets upstream write.
package compactlist

import (
	"net/http"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/kubeannex/annex/pkg/storage/compact"
)

// Handler puts itself before the handler of custom resources. It belongs behind
// authorization, as close to inner as can be.
func Handler(inner http.Handler) http.Handler {
	negotiated := newNegotiated()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		info, ok := genericapirequest.RequestInfoFrom(ctx)
		if !ok || !info.IsResourceRequest || info.Verb != "list" || info.Subresource != "" || req.Method != http.MethodGet {
			inner.ServeHTTP(w, req)
			return
		}
		switch negotiated.formOf(req) {
		case plainJSON:
			if auditsResponse(req) {
				break
			}
			ctx, answer := compact.WithAnswer(ctx)
			req := req.WithContext(ctx)
			inner.ServeHTTP(responsewriter.WrapForHTTP1Or2(&writer{ResponseWriter: w, req: req, answer: answer, failures: negotiated.plain}), req)
			return
		case metadata:
			req = req.WithContext(compact.WithMetadataOnly(ctx))
		}
		inner.ServeHTTP(w, req)
	})
}

// auditsResponse reports whether the objects of the answer go into the audit event.
func auditsResponse(req *http.Request) bool {
	event := audit.AuditContextFrom(req.Context())
	return event != nil && !event.GetEventLevel().Less(auditinternal.LevelRequestResponse)
}
