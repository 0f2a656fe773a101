// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

const ownPath = "/apis/lab.annex.test/v1/namespaces/t/gadgets"

// as is the same server for another user.
func (w world) as(t *testing.T, user string, groups ...string) world {
	t.Helper()
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	annex, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return world{config: config, annex: annex}
}

func TestOnlyWhoMayList(t *testing.T) {
	w := startWorld(t, "--authorization-webhook-config-file="+startAuthorizer(t))
	hers := w.as(t, "ada", "devs")
	client, err := dynamic.NewForConfig(hers.config)
	if err != nil {
		t.Fatal(err)
	}
	_, listErr := client.Resource(env.GadgetResource("v1")).List(t.Context(), metav1.ListOptions{})
	_, reviewErr := hers.review(t, v1alpha1.ListReviewSpec{Path: allPath})
	if !apierrors.IsForbidden(listErr) {
		t.Fatalf("got %v for a list, want forbidden", listErr)
	}
	if diff := cmp.Diff(statusOf(listErr), statusOf(reviewErr)); diff != "" {
		t.Errorf("error (-list +review):\n%s", diff)
	}
	t.Run("figures", func(t *testing.T) { w.checkFigures(t) })
}

// figures names those that a cost has.
func figures(cost *v1alpha1.ListCost) string {
	var names []string
	for _, figure := range []struct {
		name  string
		value *int64
	}{{"total", cost.Total}, {"scanned", cost.Scanned}, {"returned", cost.Returned}, {"bytes", cost.Bytes}, {"seats", cost.Seats}} {
		if figure.value != nil {
			names = append(names, figure.name)
		}
	}
	return strings.Join(names, " ")
}

// checkFigures asks as users who may list everything, one namespace, and one object.
func (w world) checkFigures(t *testing.T) {
	t.Helper()
	for name, tc := range map[string]struct {
		user                     string
		query                    string
		wantEstimate, wantActual string
		wantUnknown              string
	}{
		"everything": {"root", "", "total scanned returned bytes", "total scanned returned bytes", ""},
		"a namespace": {
			"ada", "", "scanned returned", "scanned returned bytes", "How many objects the resource has",
		},
		"a label in a namespace": {
			"ada", "?labelSelector=team%3Da", "scanned returned", "scanned returned bytes", "How many objects the resource has",
		},
		"one object": {
			"bob", "?fieldSelector=metadata.name%3Dg-00000", "", "returned bytes", "How many objects there are beside those",
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, err := w.as(t, tc.user, "devs").review(t, v1alpha1.ListReviewSpec{Path: ownPath + tc.query, Analyze: true})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.wantEstimate, tc.wantActual}, []string{figures(status.Estimate), figures(status.Actual)}); diff != "" {
				t.Errorf("figures of the estimate and of the list (-want +got):\n%s", diff)
			}
			hidden := ""
			for _, sentence := range status.Unknown {
				if strings.HasPrefix(sentence, "How many objects") {
					hidden = sentence
				}
			}
			if !strings.HasPrefix(hidden, tc.wantUnknown) || (hidden == "") != (tc.wantUnknown == "") {
				t.Errorf("got %q unknown, want %q", hidden, tc.wantUnknown)
			}
		})
	}
}
