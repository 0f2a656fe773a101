// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// TestOrigin sends a request for a review through the filters that matter, and looks at the
// list that is run for it.
func TestOrigin(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path string
		audited      bool
		impersonator string
		header       http.Header
		want         []string
	}{
		"by a user himself": {
			audited: true,
			want:    []string{"[192.0.2.7]", "kubectl-annex/v1", "id-1", ""},
		},
		"by an impersonator, through proxies": {
			audited: true, impersonator: "root",
			header: http.Header{"X-Forwarded-For": {"198.51.100.1, 198.51.100.2"}, "X-Real-Ip": {"198.51.100.3"}},
			want:   []string{"[198.51.100.1 198.51.100.2 198.51.100.3 192.0.2.7]", "kubectl-annex/v1", "id-1", "root"},
		},
		"where reviews are not audited": {
			impersonator: "root",
			want:         []string{"[192.0.2.7]", "kubectl-annex/v1", "id-1", ""},
		},
		"of something else": {
			method: http.MethodGet, audited: true, impersonator: "root",
			want: []string{"[]", "", "id-1", "root"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			config := newExplainer(func(http.ResponseWriter, *http.Request) {}).config
			config.Server = filters.WithAuditInit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				event := audit.AuditContextFrom(req.Context())
				askedBy, _ := event.GetEventAnnotation(AnnotationAskedBy)
				got = []string{fmt.Sprint(utilnet.SourceIPs(req)), req.UserAgent(), string(event.AuditID()), askedBy}
			}))
			explainer := New(config)
			chain := WithOrigin(filters.WithAuditInit(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				ctx := auditAsked(req, tc.audited, tc.impersonator)
				if _, err := explainer.Explain(ctx, &kubeannex.ListReviewSpec{Path: "/apis/g/v1/things", Analyze: true}); err != nil {
					t.Error(err)
				}
			})))
			method := http.MethodPost
			if tc.method != "" {
				method = tc.method
			}
			req := httptest.NewRequestWithContext(asker(t), method, "/apis/kubeannex.io/v1alpha1/listreviews", http.NoBody)
			req.RemoteAddr = "192.0.2.7:1234"
			req.Header.Set("User-Agent", "kubectl-annex/v1")
			req.Header.Set(auditinternal.HeaderAuditID, "id-1")
			maps.Copy(req.Header, tc.header)
			chain.ServeHTTP(httptest.NewRecorder(), req)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("addresses, user agent, Audit-ID and who asks (-want +got):\n%s", diff)
			}
		})
	}
}

// auditAsked does what the filters of audit and impersonation do.
func auditAsked(req *http.Request, audited bool, impersonator string) context.Context {
	ctx := req.Context()
	level := auditinternal.LevelNone
	if audited {
		level = auditinternal.LevelMetadata
	}
	_ = audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: level}, nil)
	requester := &user.DefaultInfo{Name: "ada"}
	if impersonator != "" {
		audit.LogRequestMetadata(ctx, req, audit.AuditContextFrom(ctx).GetEventRequestReceivedTimestamp().Time, &authorizer.AttributesRecord{User: &user.DefaultInfo{Name: impersonator}})
		audit.LogImpersonatedUser(ctx, requester, "")
	}
	return ctx
}

// warnings keeps what is added.
type warnings []string

func (w *warnings) AddWarning(agent, text string) { *w = append(*w, agent+" "+text) }

func TestWarningsArePassed(t *testing.T) {
	config := newExplainer(func(http.ResponseWriter, *http.Request) {}).config
	config.Server = filters.WithWarningRecorder(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		warning.AddWarning(req.Context(), "", `g/v1 things are "old"`)
		warning.AddWarning(req.Context(), "annex", "slow")
	}))
	var got warnings
	ctx := warning.WithWarningRecorder(asker(t), &got)
	if _, err := New(config).Explain(ctx, &kubeannex.ListReviewSpec{Path: "/apis/g/v1/things", Analyze: true}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(warnings{`- g/v1 things are "old"`, "annex slow"}, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
