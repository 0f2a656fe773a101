// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

type valueKey struct{}

// asker is a request for a review by a user.
func asker(t *testing.T) context.Context {
	t.Helper()
	ctx := context.WithValue(t.Context(), valueKey{}, "of the review")
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{Verb: "create", Resource: "listreviews"})
	return genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "ada", Groups: []string{"devs"}, Extra: map[string][]string{"k": {"v"}}})
}

// allow lets users do what is in the set.
type allow map[string]bool

func (a allow) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if attributes.GetResource() == "broken" {
		return authorizer.DecisionNoOpinion, "", errors.New("no answer")
	}
	if a[attributes.GetUser().GetName()+" "+attributes.GetVerb()+" "+attributes.GetResource()] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func newExplainer(handler http.HandlerFunc) *Explainer {
	return New(Config{
		Handler:    handler,
		Server:     handler,
		Authorizer: allow{"ada list things": true, "ada watch things": true, "ada list seen": true},
		Definition: func(schema.GroupVersionResource) Definition { return Definition{} },
		Seats:      func(*http.Request) int64 { return 3 },
	})
}

func TestRequestGoesAsTheAsker(t *testing.T) {
	var asked *http.Request
	explainer := newExplainer(func(w http.ResponseWriter, request *http.Request) {
		asked = request
		fmt.Fprint(w, "{}")
	})
	status, err := explainer.Explain(asker(t), &kubeannex.ListReviewSpec{Path: "/apis/g/v1/things?limit=5"})
	if err != nil {
		t.Fatal(err)
	}
	requester, _ := genericapirequest.UserFrom(asked.Context())
	want := &user.DefaultInfo{Name: "ada", Groups: []string{"devs"}, Extra: map[string][]string{"k": {"v"}}}
	if diff := cmp.Diff(user.Info(want), requester); diff != "" {
		t.Errorf("user (-want +got):\n%s", diff)
	}
	info, _ := genericapirequest.RequestInfoFrom(asked.Context())
	got := []string{asked.Method, asked.URL.RequestURI(), info.Verb, info.Resource, asked.Header.Get("Accept")}
	if diff := cmp.Diff([]string{"GET", "/apis/g/v1/things?limit=5", "list", "things", "application/json"}, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if value := asked.Context().Value(valueKey{}); value != nil {
		t.Errorf("the request carries %v", value)
	}
	if asked.Context().Err() == nil {
		t.Error("the request was not over when its answer had begun")
	}
	if status.Source != kubeannex.ListSourceUnknown || len(status.Unknown) != 1 || *status.Estimate.Seats != 3 {
		t.Errorf("got %+v of a handler that records nothing", status)
	}
}

func TestRequestEndsWithTheAsker(t *testing.T) {
	ctx, cancel := context.WithCancel(asker(t))
	explainer := newExplainer(func(_ http.ResponseWriter, request *http.Request) {
		cancel()
		<-request.Context().Done() // hangs if it does not
	})
	if _, err := explainer.Explain(ctx, &kubeannex.ListReviewSpec{Path: "/apis/g/v1/things"}); err != nil {
		t.Fatal(err)
	}
}

func TestErrorsAreTheServersOwn(t *testing.T) {
	gone := apierrors.NewResourceExpired("too old").Status()
	gone.Kind, gone.APIVersion = "Status", "v1"
	for name, tc := range map[string]struct {
		path    string
		analyze bool
		handler http.HandlerFunc
		want    string
		reason  metav1.StatusReason
	}{
		"a status": {
			path: "/apis/g/v1/things",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusGone)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}`)
			},
			want: "too old", reason: metav1.StatusReasonExpired,
		},
		"words": {
			path:    "/apis/g/v1/things",
			handler: http.NotFound,
			want:    "the server could not find the requested resource", reason: metav1.StatusReasonNotFound,
		},
		"forbidden": {
			path: "/apis/g/v1/namespaces/n/secret",
			want: `secret.g is forbidden: User "ada" cannot list resource "secret" in API group "g" in the namespace "n"`, reason: metav1.StatusReasonForbidden,
		},
		"forbidden to watch": {
			path: "/apis/g/v1/seen?watch=true&sendInitialEvents=true",
			want: `seen.g is forbidden: User "ada" cannot watch resource "seen" in API group "g" at the cluster scope`, reason: metav1.StatusReasonForbidden,
		},
		"no answer of the authorizer": {
			path: "/apis/g/v1/broken",
			want: "Internal error occurred: no answer", reason: metav1.StatusReasonInternalError,
		},
		"a watch is not run": {
			path: "/apis/g/v1/things?watch=true&sendInitialEvents=true", analyze: true,
			want: "a watch is not run for analyze: remove sendInitialEvents or analyze", reason: metav1.StatusReasonBadRequest,
		},
		"no list": {
			path: "/apis/g/v1/things/x",
			want: `ListReview.kubeannex.io "" is invalid: spec.path: Invalid value: "/apis/g/v1/things/x": ` + errNotList.Error(), reason: metav1.StatusReasonInvalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.handler == nil {
				tc.handler = func(http.ResponseWriter, *http.Request) { t.Error("the list was sent") }
			}
			_, err := newExplainer(tc.handler).Explain(asker(t), &kubeannex.ListReviewSpec{Path: tc.path, Analyze: tc.analyze})
			status, ok := err.(*apierrors.StatusError) //nolint:errorlint // bare is what is promised
			if !ok {
				t.Fatalf("got %T %v, want a status", err, err)
			}
			if diff := cmp.Diff([]string{tc.want, string(tc.reason)}, []string{status.ErrStatus.Message, string(status.ErrStatus.Reason)}); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if strings.Contains(status.ErrStatus.Message, "\n") {
				t.Errorf("more than a line: %q", status.ErrStatus.Message)
			}
		})
	}
}

func TestAnswerKeepsErrorsAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		code     int
		writes   int
		wantKept int
	}{
		"a success":    {http.StatusOK, 3 << 10, 0},
		"an error":     {http.StatusBadRequest, 2, 2 << 10},
		"a huge error": {http.StatusInternalServerError, 3 << 10, maxErrorBytes},
	} {
		t.Run(name, func(t *testing.T) {
			a := &answer{header: http.Header{}}
			a.WriteHeader(tc.code)
			a.WriteHeader(http.StatusTeapot)
			for range tc.writes {
				if _, err := a.Write(make([]byte, 1<<10)); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff([]int{tc.code, tc.writes << 10, tc.wantKept}, []int{a.code, int(a.size), a.failed.Len()}); diff != "" {
				t.Errorf("code, size and kept (-want +got):\n%s", diff)
			}
		})
	}
}
