// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// BenchmarkGate is what the gate and the note about the front proxy add to a request
// that the cluster sends for an open group.
func BenchmarkGate(b *testing.B) {
	for _, verb := range []string{"get", "update", "watch"} {
		b.Run(verb, func(b *testing.B) {
			gate := syncedGate(nil)
			gate.set(lab, open)
			inner := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			handler := WithFrontProxy(gate.Handler(inner, codecs(), "own.test"), headerrequest.StaticStringSlice{"X-Remote-User"})
			ctx := genericapirequest.WithRequestInfo(b.Context(), &genericapirequest.RequestInfo{
				IsResourceRequest: true, APIPrefix: "apis", APIGroup: lab, APIVersion: "v1", Resource: "gadgets", Verb: verb,
			})
			ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "somebody"})
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/"+lab+"/v1/gadgets", nil)
			req.Header.Set("X-Remote-User", "somebody")
			recorder := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(recorder, req)
			}
		})
	}
}
