// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// scopes lets a user do what is in a list, and notes what was asked.
type scopes struct {
	allowed []string
	asked   []string
}

func (s *scopes) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	fields, _ := a.GetFieldSelector()
	labels, _ := a.GetLabelSelector()
	asked := fmt.Sprintf("%s in=%s name=%s fields=%d labels=%d", a.GetVerb(), a.GetNamespace(), a.GetName(), len(fields), len(labels))
	s.asked = append(s.asked, asked)
	if slices.Contains(s.allowed, asked) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestScopeOf(t *testing.T) {
	const (
		everything  = "list in= name= fields=0 labels=0"
		inNamespace = "list in=n name= fields=0 labels=0"
	)
	for name, tc := range map[string]struct {
		path      string
		allowed   []string
		want      scope
		wantAsked []string
	}{
		"all that is asked for was allowed":     {path: "things?limit=5", want: scopeResource},
		"a namespace, by an admin":              {path: "namespaces/n/things", allowed: []string{everything}, want: scopeResource, wantAsked: []string{everything}},
		"a namespace, by its owner":             {path: "namespaces/n/things", want: scopeNamespace, wantAsked: []string{everything}},
		"a selector in a namespace":             {path: "namespaces/n/things?labelSelector=a", allowed: []string{inNamespace}, want: scopeNamespace, wantAsked: []string{everything, inNamespace}},
		"one name in a namespace and no other":  {path: "namespaces/n/things?fieldSelector=metadata.name%3Dx", want: scopeRequest, wantAsked: []string{everything, inNamespace}},
		"one name and no other":                 {path: "things?fieldSelector=metadata.name%3Dx", want: scopeRequest, wantAsked: []string{everything}},
		"what a selector selects and no others": {path: "things?fieldSelector=spec.nodeName%3Dx", want: scopeRequest, wantAsked: []string{everything}},
		"a selector, by an admin, of a watch":   {path: "things?labelSelector=a&watch=1&sendInitialEvents=1", allowed: []string{everything}, want: scopeResource, wantAsked: []string{everything}},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := ParsePath("/apis/g/v1/" + tc.path)
			if err != nil {
				t.Fatal(err)
			}
			asked := &scopes{allowed: tc.allowed}
			got := New(Config{Authorizer: asked}).scopeOf(contextFor(asker(t), request), request)
			if got != tc.want {
				t.Errorf("got scope %d, want %d", got, tc.want)
			}
			if diff := cmp.Diff(tc.wantAsked, asked.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScopeHides(t *testing.T) {
	reading := annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleLatest, Index: "f:a", Total: 1000, Scanned: 100, Returned: 10, ObjectBytes: 1500}
	actual := kubeannex.ListCost{Total: ptr.To[int64](1000), Scanned: ptr.To[int64](100), Returned: ptr.To[int64](10), Bytes: ptr.To[int64](15_000)}
	for name, tc := range map[string]struct {
		scope                    scope
		wantEstimate, wantActual kubeannex.ListCost
		wantUnknown              string
	}{
		"all": {scopeResource, actual, actual, ""},
		"a namespace": {
			scopeNamespace,
			kubeannex.ListCost{Scanned: ptr.To[int64](100), Returned: ptr.To[int64](10)},
			kubeannex.ListCost{Scanned: ptr.To[int64](100), Returned: ptr.To[int64](10), Bytes: ptr.To[int64](15_000)},
			"How many objects the resource has",
		},
		"a part": {
			scopeRequest, kubeannex.ListCost{}, kubeannex.ListCost{Returned: ptr.To[int64](10), Bytes: ptr.To[int64](15_000)},
			"How many objects there are beside those",
		},
	} {
		t.Run(name, func(t *testing.T) {
			hidden := tc.scope.hide(reading)
			if diff := cmp.Diff(&tc.wantEstimate, estimate(hidden)); diff != "" {
				t.Errorf("estimate (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]any{reading.Source, reading.Rule, reading.Index}, []any{hidden.Source, hidden.Rule, hidden.Index}); diff != "" {
				t.Errorf("what is no figure (-want +got):\n%s", diff)
			}
			cost := actual
			if diff := cmp.Diff(&tc.wantActual, tc.scope.hideCost(&cost)); diff != "" {
				t.Errorf("actual (-want +got):\n%s", diff)
			}
			unknown := strings.Join(tc.scope.unknown(), "")
			if !strings.HasPrefix(unknown, tc.wantUnknown) || (unknown == "") != (tc.wantUnknown == "") {
				t.Errorf("got %q unknown, want %q", unknown, tc.wantUnknown)
			}
		})
	}
}

// TestSeatsAreOfAllObjects checks that they are told to those alone who may list all.
func TestSeatsAreOfAllObjects(t *testing.T) {
	const all, own = "list in= name= fields=0 labels=0", "list in=n name= fields=0 labels=0"
	for name, tc := range map[string]struct {
		allowed []string
		want    *int64
	}{
		"an admin": {[]string{all, own}, ptr.To[int64](3)},
		"an owner": {[]string{own}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := newExplainer(func(http.ResponseWriter, *http.Request) {}).config
			config.Authorizer = &scopes{allowed: tc.allowed}
			status, err := New(config).Explain(asker(t), &kubeannex.ListReviewSpec{Path: "/apis/g/v1/namespaces/n/things"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, status.Estimate.Seats); diff != "" {
				t.Errorf("seats (-want +got):\n%s", diff)
			}
		})
	}
}
