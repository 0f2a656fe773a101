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

func TestMayListAll(t *testing.T) {
	const everything = "list in= name= fields=0 labels=0"
	for name, tc := range map[string]struct {
		path      string
		allowed   []string
		want      bool
		wantAsked []string
	}{
		"all that is asked for was allowed":     {path: "things?limit=5", want: true},
		"a namespace, by an admin":              {path: "namespaces/n/things", allowed: []string{everything}, want: true, wantAsked: []string{everything}},
		"a namespace, by its owner":             {path: "namespaces/n/things", wantAsked: []string{everything}},
		"a selector in a namespace":             {path: "namespaces/n/things?labelSelector=a", allowed: []string{"list in=n name= fields=0 labels=0"}, wantAsked: []string{everything}},
		"one name and no other":                 {path: "things?fieldSelector=metadata.name%3Dx", wantAsked: []string{everything}},
		"what a selector selects and no others": {path: "things?fieldSelector=spec.nodeName%3Dx", wantAsked: []string{everything}},
		"a selector, by an admin, of a watch":   {path: "things?labelSelector=a&watch=1&sendInitialEvents=1", allowed: []string{everything}, want: true, wantAsked: []string{everything}},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := ParsePath("/apis/g/v1/" + tc.path)
			if err != nil {
				t.Fatal(err)
			}
			asked := &scopes{allowed: tc.allowed}
			got := New(Config{Authorizer: asked}).mayListAll(contextFor(asker(t), request), request)
			if got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if diff := cmp.Diff(tc.wantAsked, asked.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHide(t *testing.T) {
	reading := annexed.Reading{
		Source: annexed.SourceCache, Rule: annexed.RuleAny, Index: "f:a", LimitIgnored: true, Total: 1000, Scanned: 100, Returned: 10, ObjectBytes: 1500,
	}
	got := hide(reading)
	if diff := cmp.Diff(annexed.Reading{Source: annexed.SourceCache, Rule: annexed.RuleAny, LimitIgnored: true, Total: -1, Scanned: -1, Returned: -1}, got); diff != "" {
		t.Errorf("reading (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&kubeannex.ListCost{}, estimate(got)); diff != "" {
		t.Errorf("estimate (-want +got):\n%s", diff)
	}
	cost := &kubeannex.ListCost{Total: ptr.To[int64](1000), Scanned: ptr.To[int64](100), Returned: ptr.To[int64](10), Bytes: ptr.To[int64](15_000)}
	hideCost(cost)
	if diff := cmp.Diff(&kubeannex.ListCost{Returned: ptr.To[int64](10), Bytes: ptr.To[int64](15_000)}, cost); diff != "" {
		t.Errorf("actual (-want +got):\n%s", diff)
	}
	request, err := ParsePath("/apis/g/v1/namespaces/n/things")
	if err != nil {
		t.Fatal(err)
	}
	if sentence := hidden(request); !strings.HasSuffix(sentence, "are shown to those who may list all things.g.") {
		t.Errorf("got %q, which names no right", sentence)
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
