// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain holds what a running server says of lists against what it does.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

const (
	gadgets   = 900 // so many that red ones are worth a look at what the index offers
	namespace = "t"
	patience  = 30 * time.Second
	allPath   = "/apis/lab.annex.test/v1/gadgets"
)

type world struct {
	config *rest.Config
	annex  versioned.Interface
}

// startWorld starts a server with gadgets, whose cache is filled. The label team is indexed.
func startWorld(t *testing.T, flags ...string) world {
	t.Helper()
	server := testserver.StartStandalone(t, flags...)
	if err := env.InstallGadgets(t.Context(), server.ClientConfig); err != nil {
		t.Fatal(err)
	}
	if err := env.SeedGadgets(t.Context(), server.ClientConfig, namespace, gadgets); err != nil {
		t.Fatal(err)
	}
	w := world{config: rest.CopyConfig(server.ClientConfig)}
	w.config.DisableCompression = true
	var err error
	if w.annex, err = versioned.NewForConfig(w.config); err != nil {
		t.Fatal(err)
	}
	group := &v1alpha1.AnnexedGroup{Spec: v1alpha1.AnnexedGroupSpec{Resources: []v1alpha1.AnnexedResourceSpec{{Resource: "gadgets", IndexLabels: []string{"team"}}}}}
	group.Name = env.FixtureGroup
	if _, err := w.annex.KubeannexV1alpha1().AnnexedGroups().Create(t.Context(), group, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitForIndex(t)
	return w
}

// waitForIndex lists until a list reads the index of the label.
func (w world) waitForIndex(t *testing.T) {
	t.Helper()
	last := "no answer"
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		if _, err := w.list(t, allPath); err != nil { // the cache starts with the first
			return false, err
		}
		status, err := w.review(t, v1alpha1.ListReviewSpec{Path: allPath + "?labelSelector=team%3Da"})
		last = fmt.Sprintf("%+v, %v", status, err)
		return err == nil && status.Index == "l:team", nil
	})
	if err != nil {
		t.Fatalf("waiting for the index: %v, last %s", err, last)
	}
}

func (w world) review(t *testing.T, spec v1alpha1.ListReviewSpec) (v1alpha1.ListReviewStatus, error) {
	t.Helper()
	review, err := w.annex.KubeannexV1alpha1().ListReviews().Create(t.Context(), &v1alpha1.ListReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return v1alpha1.ListReviewStatus{}, err
	}
	return review.Status, nil
}

// list returns the body of a real list.
func (w world) list(t *testing.T, path string) ([]byte, error) {
	t.Helper()
	result := w.annex.Discovery().RESTClient().Get().RequestURI(path).SetHeader("Accept", "application/json").Do(t.Context())
	if err := result.Error(); err != nil {
		return nil, err // Raw would not decode it
	}
	return result.Raw()
}

func (w world) mustList(t *testing.T, path string) (body []byte, list *metav1.PartialObjectMetadataList) {
	t.Helper()
	body, err := w.list(t, path)
	if err != nil {
		t.Fatal(err)
	}
	list = &metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(body, list); err != nil {
		t.Fatal(err)
	}
	return body, list
}

func TestExplanationsAreTrue(t *testing.T) {
	w := startWorld(t)
	_, list := w.mustList(t, allPath)
	current := list.ResourceVersion
	type selector struct{ query, index string }
	all, color, team, none := selector{}, selector{"&fieldSelector=spec.color%3Dred", "f:spec.color"}, selector{"&labelSelector=team%3Da", "l:team"}, selector{"&labelSelector=other%3Da", ""}
	for name, tc := range map[string]struct {
		query        string
		wantRule     string
		limitIgnored bool
	}{
		"latest":         {"", "Latest", false},
		"latest, a page": {"&limit=5", "Latest", false},
		"any":            {"&resourceVersion=0", "Any", false},
		"any, a page":    {"&resourceVersion=0&limit=5", "Any", true},
		"since":          {"&resourceVersion=" + current, "NotOlderThan", false},
		"since, a page":  {"&resourceVersion=" + current + "&limit=5", "Exact", false},
		"exact":          {"&resourceVersionMatch=Exact&resourceVersion=" + current, "Exact", false},
	} {
		for _, s := range []selector{all, color, team, none} {
			t.Run(name+" "+s.query, func(t *testing.T) {
				path := allPath + "?" + strings.TrimPrefix(tc.query+s.query, "&")
				status, err := w.review(t, v1alpha1.ListReviewSpec{Path: strings.TrimSuffix(path, "?"), Analyze: true})
				if err != nil {
					t.Fatal(err)
				}
				wantIndex := s.index
				if tc.wantRule == "Exact" {
					wantIndex = "" // a snapshot has none
				}
				got := []any{status.Server, status.Source, status.Rule, status.LimitIgnored, status.Index}
				want := []any{v1alpha1.ListServerAnnex, v1alpha1.ListSourceCache, tc.wantRule, tc.limitIgnored, wantIndex}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("server, source, rule, limit ignored, index (-want +got):\n%s", diff)
				}
				body, list := w.mustList(t, path)
				checkCosts(t, status, int64(len(body)), int64(len(list.Items)))
			})
		}
	}
}

// checkCosts holds the costs against those of a real list.
func checkCosts(t *testing.T, status v1alpha1.ListReviewStatus, size, items int64) {
	t.Helper()
	actual := status.Actual
	if actual == nil || actual.Returned == nil || actual.Bytes == nil || actual.Duration == nil || actual.Scanned == nil {
		t.Fatalf("no actual costs: %+v", actual)
	}
	if diff := cmp.Diff([]int64{items, size}, []int64{*actual.Returned, *actual.Bytes}); diff != "" {
		t.Errorf("returned and bytes (-want +got):\n%s", diff)
	}
	if *actual.Scanned < items || status.Index != "" && *actual.Scanned > items {
		t.Errorf("scanned %d objects by index %q to return %d", *actual.Scanned, status.Index, items)
	}
	checkEstimate(t, status, items)
}

// checkEstimate holds the estimate against a real list.
func checkEstimate(t *testing.T, status v1alpha1.ListReviewStatus, items int64) {
	t.Helper()
	estimate := status.Estimate
	if estimate == nil || estimate.Total == nil || *estimate.Total != gadgets {
		t.Errorf("estimate without total: %+v", estimate)
	}
	// The sample knows every gadget.
	if status.Index != "" && (estimate.Scanned == nil || estimate.Returned == nil || *estimate.Scanned < items || *estimate.Returned != items) {
		t.Errorf("estimate of a list of %d objects by index %q: %+v", items, status.Index, estimate)
	}
	// A server that runs alone has no priority and fairness.
	if estimate.Seats != nil || len(status.Unknown) != 1 || !strings.HasPrefix(status.Unknown[0], "Fairness seats") {
		t.Errorf("got seats %v and unknown %q", estimate.Seats, status.Unknown)
	}
	if estimate.Scanned == nil || status.Index == "" && *estimate.Scanned > gadgets {
		t.Errorf("estimate of scanned objects: %+v", estimate)
	}
}

func TestEstimatesAreNear(t *testing.T) {
	w := startWorld(t)
	spec := v1alpha1.ListReviewSpec{
		Resource: &v1alpha1.ListedResource{Group: env.FixtureGroup, Version: "v1", Resource: "gadgets", Namespace: namespace},
		Options:  &v1alpha1.ListReviewOptions{FieldSelector: "spec.color=red", ResourceVersion: "0"},
		Analyze:  true,
	}
	var status v1alpha1.ListReviewStatus
	// The size of an object is sampled.
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(context.Context) (done bool, err error) {
		status, err = w.review(t, spec)
		return err == nil && status.Estimate.Bytes != nil, err
	})
	estimate, actual := status.Estimate, status.Actual
	if err != nil {
		t.Fatalf("no estimate: %v, %+v", err, estimate)
	}
	if *estimate.Returned != *actual.Returned || *estimate.Bytes < *actual.Bytes/3 || *estimate.Bytes > *actual.Bytes*3 {
		t.Errorf("estimated %d objects and %d bytes, got %d and %d", *estimate.Returned, *estimate.Bytes, *actual.Returned, *actual.Bytes)
	}
	want := "/apis/lab.annex.test/v1/namespaces/t/gadgets?fieldSelector=spec.color%3Dred&resourceVersion=0"
	if status.Path != want || len(status.Advice) != 0 {
		t.Errorf("got path %s and advice %v for a cheap list, want %s and none", status.Path, status.Advice, want)
	}
	watch, err := w.review(t, v1alpha1.ListReviewSpec{Path: allPath + "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&fieldSelector=spec.color%3Dred"})
	if err != nil {
		t.Fatal(err)
	}
	if watch.Rule != "Watch" || watch.Source != v1alpha1.ListSourceCache || watch.Index != "f:spec.color" {
		t.Errorf("got %+v for a watch", watch)
	}
}

func TestErrorsAreThoseOfTheList(t *testing.T) {
	w := startWorld(t)
	_, page := w.mustList(t, allPath+"?limit=5")
	token := url.QueryEscape(page.Continue)
	for name, path := range map[string]string{
		"malformed label selector":    allPath + "?labelSelector=%21%21",
		"malformed field selector":    allPath + "?fieldSelector=a",
		"field that is not there":     allPath + "?fieldSelector=spec.nothing%3D1",
		"field of another version":    "/apis/lab.annex.test/v1beta1/gadgets?fieldSelector=spec.size%3D1",
		"exact 0":                     allPath + "?resourceVersion=0&resourceVersionMatch=Exact",
		"match without a version":     allPath + "?resourceVersionMatch=NotOlderThan",
		"unheard-of match":            allPath + "?resourceVersion=1&resourceVersionMatch=Nearly",
		"version beside a page":       allPath + "?limit=5&resourceVersion=1&continue=" + token,
		"malformed version":           allPath + "?resourceVersion=x",
		"malformed token":             allPath + "?limit=5&continue=x",
		"token of nothing":            allPath + "?limit=5&continue=e30",
		"malformed limit":             allPath + "?limit=many",
		"initial events of a list":    allPath + "?sendInitialEvents=true",
		"unknown resource":            "/apis/lab.annex.test/v1/nothing",
		"unknown version":             "/apis/lab.annex.test/v7/gadgets",
		"unknown group":               "/apis/x.annex.test/v1/gadgets",
		"core kind without a cluster": "/api/v1/pods",
		"watch without its match":     allPath + "?watch=true&sendInitialEvents=true",
	} {
		t.Run(name, func(t *testing.T) {
			_, listErr := w.list(t, path)
			_, reviewErr := w.review(t, v1alpha1.ListReviewSpec{Path: path})
			if listErr == nil {
				t.Error("the list is not refused")
			}
			if diff := cmp.Diff(statusOf(listErr), statusOf(reviewErr)); diff != "" {
				t.Errorf("error (-list +review):\n%s", diff)
			}
		})
	}
	// What the server accepts is explained, however odd.
	for _, path := range []string{allPath + "?limit=-1", allPath + "?limit=5&continue=" + token, "/apis/kubeannex.io/v1alpha1/annexedgroups", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"} {
		if _, err := w.list(t, path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		status, err := w.review(t, v1alpha1.ListReviewSpec{Path: path, Analyze: true})
		if err != nil || status.Rule == "" || status.Source == v1alpha1.ListSourceUnknown {
			t.Errorf("%s: got %+v, %v", path, status, err)
		}
	}
}

// statusOf is what a client sees of an error, but for how it was asked.
func statusOf(err error) []any {
	if err == nil {
		return nil
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return []any{err.Error()}
	}
	return []any{status.ErrStatus.Code, status.ErrStatus.Reason, status.ErrStatus.Message, status.ErrStatus.Status, status.ErrStatus.Details}
}

// TestExplanationStartsNoCache asks about a version that nobody has read.
func TestExplanationStartsNoCache(t *testing.T) {
	w := startWorld(t)
	const idle = "/apis/lab.annex.test/v1beta1/gadgets"
	var got []string
	ask := func(spec v1alpha1.ListReviewSpec) {
		status, err := w.review(t, spec)
		if err != nil {
			t.Fatal(err)
		}
		if status.Explanation == "" || status.Estimate.Total == nil || *status.Estimate.Total != gadgets {
			t.Errorf("got %+v without words or the number of objects", status)
		}
		got = append(got, string(status.Source)+" "+status.Rule)
	}
	ask(v1alpha1.ListReviewSpec{Path: idle})
	ask(v1alpha1.ListReviewSpec{Path: idle + "?resourceVersion=0"})
	ask(v1alpha1.ListReviewSpec{Path: idle, Analyze: true})
	ask(v1alpha1.ListReviewSpec{Path: idle})
	want := []string{"Cache NotStarted", "Cache NotStarted", "Cache Latest", "Cache Latest"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sources and rules (-want +got):\n%s", diff)
	}
}
