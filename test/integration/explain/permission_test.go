// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
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
		wantIndex                string
		wantHidden               bool
	}{
		"everything": {"root", "?labelSelector=team%3Da", "total scanned returned bytes", "total scanned returned bytes", "l:team", false},
		"a namespace": {
			"ada", "", "", "returned bytes", "", true,
		},
		"a label in a namespace": {
			"ada", "?labelSelector=team%3Da", "", "returned bytes", "", true,
		},
		"one object": {
			"bob", "?fieldSelector=metadata.name%3Dg-00000", "", "returned bytes", "", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, err := w.as(t, tc.user, "devs").review(t, v1alpha1.ListReviewSpec{Path: ownPath + tc.query, Analyze: true})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.wantEstimate, tc.wantActual, tc.wantIndex}, []string{figures(status.Estimate), figures(status.Actual), status.Index}); diff != "" {
				t.Errorf("figures of the estimate and of the list, and the index (-want +got):\n%s", diff)
			}
			if status.Rule == "" || status.Source == v1alpha1.ListSourceUnknown {
				t.Errorf("got %+v without the rule or the source", status)
			}
			hidden := slices.ContainsFunc(status.Unknown, func(sentence string) bool {
				return strings.Contains(sentence, "those who may list all gadgets.lab.annex.test")
			})
			if hidden != tc.wantHidden {
				t.Errorf("got %q unknown, want it to say what is hidden: %t", status.Unknown, tc.wantHidden)
			}
		})
	}
}
