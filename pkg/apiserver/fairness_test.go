// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// asking asks for the seats of a request, as fairness does of one that is not exempt.
type asking struct {
	fairness
	seats *uint64
}

func (a asking) Handle(_ context.Context, _ utilflowcontrol.RequestDigest,
	note func(*flowcontrol.FlowSchema, *flowcontrol.PriorityLevelConfiguration, string),
	estimate func() flowcontrolrequest.WorkEstimate, _ fairqueuing.QueueNoteFn, execute func(),
) {
	note(&flowcontrol.FlowSchema{}, &flowcontrol.PriorityLevelConfiguration{}, "")
	*a.seats = estimate().InitialSeats
	execute()
}

// TestIndexedFairnessFallsBack leaves to upstream what it knows nothing of, and what has no query.
// TestSeats of test/fairness has the lists that it does know.
func TestIndexedFairnessFallsBack(t *testing.T) {
	list := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: "g", APIVersion: "v1", Resource: "things"}
	for name, tc := range map[string]struct {
		ctx  context.Context
		info *genericapirequest.RequestInfo
	}{
		"a list of a resource that is not known": {context.WithValue(t.Context(), queryKey{}, ""), list},
		"a list whose selector is none":          {context.WithValue(t.Context(), queryKey{}, "fieldSelector=red"), list},
		"a request that is no read":              {t.Context(), &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "create"}},
		"a path of no resource":                  {context.WithValue(t.Context(), queryKey{}, ""), &genericapirequest.RequestInfo{Verb: "get"}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked uint64
			inner := asking{seats: &asked}
			fair := indexedFairness{Interface: inner, seats: newListSeats(inner, flowcontrolrequest.NewStorageObjectCountTracker(), annexed.NewCatalog())}
			var noted, executed bool
			fair.Handle(tc.ctx, utilflowcontrol.RequestDigest{RequestInfo: tc.info},
				func(*flowcontrol.FlowSchema, *flowcontrol.PriorityLevelConfiguration, string) { noted = true },
				func() flowcontrolrequest.WorkEstimate { return flowcontrolrequest.WorkEstimate{InitialSeats: 7} },
				nil, func() { executed = true })
			if asked != 7 || !noted || !executed {
				t.Errorf("got %d seats, noted %t, executed %t, want upstream's 7 and both", asked, noted, executed)
			}
		})
	}
}

// TestParseListOptions reads queries as the handler of lists does.
func TestParseListOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		query string
		want  bool
		check func(t *testing.T, limit int64, field, label, version string, match metav1.ResourceVersionMatch)
	}{
		"everything": {query: "", want: true},
		"all there is": {
			query: "limit=7&fieldSelector=spec.color%3Dred&labelSelector=team%3Da&resourceVersion=0&resourceVersionMatch=NotOlderThan", want: true,
			check: func(t *testing.T, limit int64, field, label, version string, match metav1.ResourceVersionMatch) {
				t.Helper()
				if limit != 7 || field != "spec.color=red" || label != "team=a" || version != "0" || match != metav1.ResourceVersionMatchNotOlderThan {
					t.Errorf("got %d %q %q %q %q", limit, field, label, version, match)
				}
			},
		},
		"a label selector that is none": {query: "labelSelector=%3D%3D%3D"},
		"a field selector that is none": {query: "fieldSelector=red"},
		"a limit that is none":          {query: "limit=many"},
		"a query that is none":          {query: "limit=%zz"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseListOptions(tc.query)
			if ok != tc.want {
				t.Fatalf("got %t, want %t", ok, tc.want)
			}
			if tc.check != nil {
				tc.check(t, got.Predicate.Limit, got.Predicate.Field.String(), got.Predicate.Label.String(), got.ResourceVersion, got.ResourceVersionMatch)
			}
		})
	}
}

// TestWithQuery hands on the queries of reads alone.
func TestWithQuery(t *testing.T) {
	for method, want := range map[string]bool{http.MethodGet: true, http.MethodPost: false} {
		var got any
		handler := withQuery(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) { got = request.Context().Value(queryKey{}) }))
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, "/apis?limit=1", http.NoBody))
		if (got == "limit=1") != want {
			t.Errorf("%s: the query is %v, want that it is there: %t", method, got, want)
		}
	}
}
