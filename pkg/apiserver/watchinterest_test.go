// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// watchOf is a request to watch planets.
func watchOf(t *testing.T, namespace, name, fieldSelector, labelSelector string) *http.Request {
	t.Helper()
	query := url.Values{"watch": {"1"}}
	if fieldSelector != "" {
		query.Set("fieldSelector", fieldSelector)
	}
	if labelSelector != "" {
		query.Set("labelSelector", labelSelector)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?"+query.Encode(), nil)
	return r.WithContext(genericapirequest.WithRequestInfo(r.Context(), requestFor("watch", namespace, name)))
}

func requestFor(verb, namespace, name string) *genericapirequest.RequestInfo {
	return &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIGroup: "example.com", APIVersion: "v1", Resource: "planets", Namespace: namespace, Name: name,
	}
}

func TestWatchInterest(t *testing.T) {
	byNode := annexed.Trigger{Field: "spec.nodeName"}
	type opened struct{ namespace, name, field, label string }
	cases := map[string]struct {
		trigger annexed.Trigger
		watches []opened
		request *genericapirequest.RequestInfo
		want    int
	}{
		"watches of other values of the trigger are not counted": {
			trigger: byNode,
			watches: []opened{{field: "spec.nodeName=a"}, {field: "spec.nodeName=b"}, {field: "spec.nodeName=c"}},
			request: requestFor("update", "n", "x"),
			want:    1,
		},
		"an average is rounded up": {
			trigger: byNode,
			watches: []opened{{field: "spec.nodeName=a"}, {field: "spec.nodeName=a"}, {field: "spec.nodeName=b"}},
			request: requestFor("update", "n", "x"),
			want:    2,
		},
		"a value that nearly all watch weighs most": {
			trigger: byNode,
			watches: []opened{
				{field: "spec.nodeName=a"}, {field: "spec.nodeName=a"}, {field: "spec.nodeName=a"}, {field: "spec.nodeName=a"}, {field: "spec.nodeName=a"},
				{field: "spec.nodeName=b"}, {field: "spec.nodeName=c"},
			},
			request: requestFor("update", "n", "x"),
			want:    4,
		},
		"watches of all objects come on top": {
			trigger: byNode,
			watches: []opened{{field: "spec.nodeName=a"}, {field: "spec.nodeName=b"}, {}, {field: "spec.nodeName!=a"}},
			request: requestFor("create", "n", ""),
			want:    3,
		},
		"a watch of one namespace counts there only": {
			trigger: byNode,
			watches: []opened{{namespace: "n", field: "spec.nodeName=a"}, {namespace: "m", field: "spec.nodeName=a"}, {field: "spec.nodeName=a"}},
			request: requestFor("patch", "n", "x"),
			want:    2,
		},
		"a watch of one object is upstream's": {
			trigger: byNode,
			watches: []opened{{namespace: "n", name: "x"}, {namespace: "n", name: "y"}},
			request: requestFor("delete", "n", "x"),
			want:    1,
		},
		"a label is the trigger": {
			trigger: annexed.Trigger{Label: "app"},
			watches: []opened{{label: "app=a"}, {label: "app=b"}, {label: "app in (a,b)"}, {field: "spec.nodeName=a"}},
			request: requestFor("update", "n", "x"),
			want:    3,
		},
		"without a trigger every watch counts": {
			watches: []opened{{field: "spec.nodeName=a"}, {field: "spec.nodeName=b"}},
			request: requestFor("update", "n", "x"),
			want:    2,
		},
		"a selector that will be refused counts": {
			trigger: byNode,
			watches: []opened{{field: "spec.nodeName"}},
			request: requestFor("update", "n", "x"),
			want:    1,
		},
		"reads make no events": {
			trigger: byNode,
			watches: []opened{{field: "spec.nodeName=a"}, {}},
			request: requestFor("list", "n", ""),
			want:    0,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			interest := newWatchInterest(utilflowcontrol.NewWatchTracker(), func(schema.GroupVersionResource) annexed.Trigger { return tc.trigger })
			var forget []utilflowcontrol.ForgetWatchFunc
			for _, w := range tc.watches {
				forget = append(forget, interest.RegisterWatch(watchOf(t, w.namespace, w.name, w.field, w.label)))
			}
			if diff := cmp.Diff(tc.want, interest.GetInterestedWatchCount(tc.request)); diff != "" {
				t.Errorf("interested watches (-want +got):\n%s", diff)
			}
			for _, f := range forget {
				f()
			}
			if diff := cmp.Diff(0, interest.GetInterestedWatchCount(tc.request)); diff != "" {
				t.Errorf("interested watches when all have ended (-want +got):\n%s", diff)
			}
			if len(interest.dispatched) != 0 {
				t.Errorf("%d scopes are kept although all watches have ended", len(interest.dispatched))
			}
		})
	}
}
