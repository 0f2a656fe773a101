// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/audit"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// TestAnAnalysedListIsCounted runs a list in the creation of a ListReview.
func TestAnAnalysedListIsCounted(t *testing.T) {
	list := request{verb: "list", resource: "gadgets", user: "alice"}
	ownEvent := list.context(t.Context())
	tests := map[string]struct {
		ctx  context.Context
		want []kubeannex.ListProfileRow
	}{
		"run":            {ctx: ownEvent, want: []kubeannex.ListProfileRow{{Client: "kubectl-annex", ClientVersion: "v1", User: "alice", Verb: "list", Group: "lab.annex.test", Version: "v1", Resource: "gadgets", Count: 1}}},
		"only explained": {ctx: t.Context()},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tracker := newTracker(10, clock.RealClock{}, func(context.Context) (context.Context, recorder) {
				t.Error("another recorder was made")
				return nil, nil
			})
			var recorder *annexed.Recorder
			inner := tracker.Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if !annexed.HasRecorder(req.Context()) {
					t.Error("the recorder is lost")
				}
			}), gadgetsOnly, anyIndex)
			outer := tracker.Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				ctx := tc.ctx
				if tc.want == nil {
					ctx, recorder = annexed.WithExplanation(list.context(ctx))
				} else {
					ctx, recorder = WithAnalysis(ctx, req.Context())
				}
				run := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
				run.Header.Set("User-Agent", "kubectl-annex/v1 (linux/amd64)")
				inner.ServeHTTP(httptest.NewRecorder(), run)
			}), gadgetsOnly, anyIndex)
			create := genericapirequest.WithRequestInfo(request{user: "alice"}.context(t.Context()), &genericapirequest.RequestInfo{
				IsResourceRequest: true, Verb: "create", APIGroup: kubeannex.GroupName, Resource: "listreviews",
			})
			req := httptest.NewRequestWithContext(create, http.MethodPost, "/", nil)
			outer.ServeHTTP(httptest.NewRecorder(), req)
			if _, ok := recorder.Reading(); ok {
				t.Error("a reading that nobody has made")
			}
			got := rowsOf(tracker)
			for i := range got {
				got[i].LastSeen.Time = time.Time{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("annotations", func(t *testing.T) {
		around, inner := list.context(t.Context()), list.context(t.Context())
		ctx, _ := WithAnalysis(inner, around)
		tracker, _ := newTestTracker(10)
		r := tracker.track(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), gadgetsOnly, anyIndex)
		r.annotate(annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, Scanned: 3, Returned: 2})
		want := map[string]string{AnnotationSource: "Cache", AnnotationRule: "Any", AnnotationScanned: "3", AnnotationReturned: "2"}
		for name, ctx := range map[string]context.Context{"around": around, "own": inner} {
			if diff := cmp.Diff(want, audit.AuditContextFrom(ctx).GetEventAnnotations()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}
