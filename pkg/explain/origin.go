// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"net/http"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
)

// AnnotationAskedBy names, in the audit event of a list that is run for a review, who asked for
// that as the user of the event. There is none if that was the user himself, or if the
// review has no audit event.
const AnnotationAskedBy = "kubeannex.io/asked-by"

// origin is where a request comes from.
type origin struct {
	remoteAddr string
	// header has the user agent, and those by which proxies tell the address of their client.
	header http.Header
}

type originKey struct{}

// WithOrigin notes where requests for reviews come from, for the audit events of lists that are run for
// them. It belongs before the filters of a server.
func WithOrigin(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/listreviews") {
			req = req.WithContext(context.WithValue(req.Context(), originKey{}, originOf(req)))
		}
		inner.ServeHTTP(w, req)
	})
}

// originOf keeps what audit events take the client and source addresses from (k8s.io/apimachinery pkg/util/net, SourceIPs).
func originOf(req *http.Request) origin {
	from := origin{remoteAddr: req.RemoteAddr, header: http.Header{}}
	for _, name := range []string{"User-Agent", "X-Forwarded-For", "X-Real-Ip"} {
		if value := req.Header.Get(name); value != "" {
			from.header.Set(name, value)
		}
	}
	return from
}

// comingFrom lets a request come from where the one around it does, with the same user agent and
// Audit-ID. It returns the context of the request, whose audit event names who asks.
func comingFrom(ctx, around context.Context, request *Request) context.Context {
	from, _ := around.Value(originKey{}).(origin)
	header := from.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if id, ok := audit.AuditIDFrom(around); ok && id != "" {
		header.Set(auditinternal.HeaderAuditID, string(id))
	}
	request.header, request.remoteAddr = header, from.remoteAddr
	// The filters of the server go on with an audit event that is there.
	ctx = audit.WithAuditContext(ctx)
	if event := audit.AuditContextFrom(around); event != nil && event.GetEventImpersonatedUser() != nil {
		audit.AddAuditAnnotation(ctx, AnnotationAskedBy, event.GetEventUser().Username)
	}
	return ctx
}

// passWarnings adds the warnings of a list to those of the request around it.
func passWarnings(around context.Context, header http.Header) {
	warnings, _ := utilnet.ParseWarningHeaders(header.Values("Warning"))
	for _, w := range warnings {
		warning.AddWarning(around, w.Agent, w.Text)
	}
}
