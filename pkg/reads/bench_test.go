// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// nowhere is a writer of the cheapest kind.
type nowhere struct{ header http.Header }

func (w nowhere) Header() http.Header          { return w.header }
func (nowhere) Write(data []byte) (int, error) { return len(data), nil }
func (nowhere) WriteHeader(int)                {}

// BenchmarkHandler shows what the account of one list costs. A list of 25 objects takes 100 µs.
func BenchmarkHandler(b *testing.B) {
	answered := &fakeRecorder{annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleLatest, Index: "f:spec.nodeName", Scanned: 25, Returned: 25}, true}
	body := make([]byte, 40_000)
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	for name, tc := range map[string]struct {
		labels, fields  string
		clients         int
		audited, nobody bool
	}{
		"not tracked":         {nobody: true, clients: 1},
		"everything":          {clients: 1},
		"by a field":          {clients: 1, fields: "spec.nodeName=node-17"},
		"by labels and field": {clients: 1, labels: "app=x,tier in (a,b)", fields: "spec.nodeName=node-17"},
		"audited":             {clients: 1, fields: "spec.nodeName=node-17", audited: true},
		"rows are dropped":    {clients: 4 * DefaultRows, fields: "spec.nodeName=node-17"},
	} {
		b.Run(name, func(b *testing.B) {
			handler := http.Handler(inner)
			if !tc.nobody {
				handler = newTracker(DefaultRows, clock.RealClock{}, func(ctx context.Context) (context.Context, recorder) {
					ctx, _ = annexed.WithRecorder(ctx)
					return ctx, answered
				}).Handler(inner, gadgetsOnly, anyIndex)
			}
			var requests []*http.Request
			for i := range tc.clients {
				list := request{verb: "list", resource: "gadgets", namespace: "prod", labels: tc.labels, user: fmt.Sprintf("system:node:node-%d", i)}
				ctx := list.context(b.Context())
				info, _ := genericapirequest.RequestInfoFrom(ctx)
				info.FieldSelector = tc.fields
				if !tc.audited {
					if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelNone}, nil); err != nil {
						b.Fatal(err)
					}
				}
				req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
				req.Header.Set("User-Agent", "kubelet/v1.37.2 (linux/amd64) kubernetes/abc123")
				requests = append(requests, req)
			}
			b.ReportAllocs()
			next := 0
			for b.Loop() {
				handler.ServeHTTP(nowhere{}, requests[next%len(requests)])
				next++
			}
		})
	}
}
