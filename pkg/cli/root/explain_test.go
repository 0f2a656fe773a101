// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package root

import (
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/restmapper"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	annexfake "github.com/kubeannex/annex/pkg/generated/clientset/versioned/fake"
)

// fakeMapper is what kubectl makes of a cluster's discovery.
func fakeMapper() meta.RESTMapper {
	client := &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{}}
	verbs := metav1.Verbs{"create", "get", "list", "watch"}
	client.Resources = []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", SingularName: "pod", Kind: "Pod", ShortNames: []string{"po"}, Namespaced: true, Verbs: verbs},
			{Name: "nodes", SingularName: "node", Kind: "Node", ShortNames: []string{"no"}, Verbs: verbs},
		}},
		{GroupVersion: "example.com/v2", APIResources: []metav1.APIResource{
			{Name: "widgets", SingularName: "widget", Kind: "Widget", ShortNames: []string{"wd"}, Namespaced: true, Verbs: verbs},
		}},
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
			{Name: "widgets", SingularName: "widget", Kind: "Widget", ShortNames: []string{"wd"}, Namespaced: true, Verbs: verbs},
		}},
	}
	cached := memory.NewMemCacheClient(client)
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
}

// answered makes annex answer reviews with a status.
func answered(status kubeannexv1alpha1.ListReviewStatus) func(*annexfake.Clientset) {
	return func(c *annexfake.Clientset) {
		c.PrependReactor("create", "listreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
			review := action.(clienttesting.CreateAction).GetObject().(*kubeannexv1alpha1.ListReview).DeepCopy()
			review.Status = status
			return true, review, nil
		})
	}
}

func refused(err error) func(*annexfake.Clientset) {
	return func(c *annexfake.Clientset) {
		c.PrependReactor("create", "listreviews", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
}

func indexedList() kubeannexv1alpha1.ListReviewStatus {
	return kubeannexv1alpha1.ListReviewStatus{
		Path:   "/apis/example.com/v2/namespaces/prod/widgets?fieldSelector=spec.nodeName%3Dn1&labelSelector=app%3Dx&limit=500&resourceVersion=0",
		Server: kubeannexv1alpha1.ListServerAnnex, Source: kubeannexv1alpha1.ListSourceCache, Rule: "Any",
		Explanation: "resourceVersion is 0: the cache answers at once with what it has", LimitIgnored: true, Index: "f:spec.nodeName",
		Estimate: &kubeannexv1alpha1.ListCost{
			Total: ptr.To[int64](100000), Scanned: ptr.To[int64](25), Returned: ptr.To[int64](25), Bytes: ptr.To[int64](25 * 1536), Seats: ptr.To[int64](1),
		},
	}
}

func scannedList() kubeannexv1alpha1.ListReviewStatus {
	return kubeannexv1alpha1.ListReviewStatus{
		Path:   "/apis/example.com/v2/widgets?labelSelector=app%3Dx",
		Server: kubeannexv1alpha1.ListServerAnnex, Source: kubeannexv1alpha1.ListSourceEtcd, Rule: "LatestFromEtcd",
		Explanation: "the cache cannot catch up\nwith etcd",
		Estimate:    &kubeannexv1alpha1.ListCost{Total: ptr.To[int64](100000), Scanned: ptr.To[int64](100000), Seats: ptr.To[int64](10)},
		Actual: &kubeannexv1alpha1.ListCost{
			Total: ptr.To[int64](100000), Scanned: ptr.To[int64](100000), Returned: ptr.To[int64](1234), Bytes: ptr.To[int64](3 << 20), Seats: ptr.To[int64](10),
			Duration: &metav1.Duration{Duration: 1234567 * time.Microsecond},
		},
		Advice: []kubeannexv1alpha1.ListAdvice{
			{Reason: "IndexLabel", Message: "index the label app: \"kubectl annex adopt example.com --index-label widgets=app\""},
			{Reason: "AskForNamespace", Message: "ask for one namespace"},
		},
	}
}

// partialList is a list of one who may not list everything: index and figures are hidden.
func partialList() kubeannexv1alpha1.ListReviewStatus {
	return kubeannexv1alpha1.ListReviewStatus{
		Path:   "/apis/example.com/v2/namespaces/prod/widgets",
		Server: kubeannexv1alpha1.ListServerAnnex, Source: kubeannexv1alpha1.ListSourceCache, Rule: "Latest",
		Explanation: "the cache answers",
		Unknown:     []string{"The index is shown to those who may list all widgets"},
	}
}

func hostList() kubeannexv1alpha1.ListReviewStatus {
	return kubeannexv1alpha1.ListReviewStatus{
		Path:   "/api/v1/nodes",
		Server: kubeannexv1alpha1.ListServerHost, ServerVersion: "v1.31.14", Source: kubeannexv1alpha1.ListSourceUnknown,
		Estimate: &kubeannexv1alpha1.ListCost{Total: ptr.To[int64](3)},
		Unknown:  []string{"Whether the feature ConsistentListFromCache is on", "How many objects the server has"},
	}
}

func TestExplain(t *testing.T) {
	selective := []string{"explain", "widgets", "-l", "app=x", "--field-selector=spec.nodeName=n1", "--limit=500", "--resource-version=0"}
	for name, s := range map[string]session{
		"explain":                    {args: selective, namespace: "prod", answers: answered(indexedList())},
		"explain as json":            {args: append(selective, "-ojson"), namespace: "prod", answers: answered(indexedList())},
		"explain as yaml":            {args: []string{"explain", "no", "-oyaml"}, answers: answered(hostList())},
		"explain and analyze":        {args: []string{"explain", "widgets", "-A", "--analyze", "-lapp=x"}, namespace: "prod", answers: answered(scannedList())},
		"explain a part":             {args: []string{"explain", "widgets"}, namespace: "prod", answers: answered(partialList())},
		"explain in the host":        {args: []string{"explain", "nodes"}, namespace: "prod", answers: answered(hostList())},
		"explain without an answer":  {args: []string{"explain", "po"}, answers: answered(kubeannexv1alpha1.ListReviewStatus{})},
		"explain a page":             {args: []string{"explain", "pods", "--limit=5", "--continue=abc"}, answers: answered(hostList())},
		"explain a watch":            {args: []string{"explain", "pods", "--send-initial-events", "--resource-version-match=NotOlderThan"}, answers: answered(hostList())},
		"explain a path":             {args: []string{"explain", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500", "--analyze"}, answers: answered(hostList())},
		"explain a URL":              {args: []string{"explain", "https://host/api/v1/pods"}, answers: answered(hostList())},
		"explain path and selector":  {args: []string{"explain", "/api/v1/pods", "-l", "app"}},
		"explain path and all":       {args: []string{"explain", "/api/v1/pods", "-A"}},
		"explain path and namespace": {args: []string{"explain", "/api/v1/pods"}, namespace: "prod"},
		"explain two paths":          {args: []string{"explain", "/api/v1/pods", "limit=5"}},
		"explain nothing":            {args: []string{"explain"}},
		"explain one object":         {args: []string{"explain", "widgets/one"}},
		"explain an object by name":  {args: []string{"explain", "widgets", "one"}},
		"explain two resources":      {args: []string{"explain", "pods,nodes"}},
		"explain unknown":            {args: []string{"explain", "gadgets"}},
		"explain unknown of group":   {args: []string{"explain", "gadgets.example.com"}},
		"explain odd format":         {args: []string{"explain", "pods", "-owide"}},
		"explain odd number":         {args: []string{"explain", "pods", "--limit=many"}},
		"explain refused": {args: []string{"explain", "pods", "--resource-version=0", "--resource-version-match=Exact"}, answers: refused(
			apierrors.NewBadRequest("resourceVersionMatch \"exact\" is forbidden\nfor resourceVersion \"0\""))},
		"explain without permission": {args: []string{"explain", "pods"}, answers: refused(
			apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil))},
		"explain annex gone": {args: []string{"explain", "pods"}, answers: refused(
			apierrors.NewGenericServerResponse(http.StatusNotFound, "post", resource(), "", "404 page not found", 0, true))},
	} {
		t.Run(name, func(t *testing.T) { compare(t, name, s.run(t)) })
	}
}

// TestNamesOfResources has all forms that kubectl get takes.
func TestNamesOfResources(t *testing.T) {
	widgets := func(version string) kubeannexv1alpha1.ListedResource {
		return kubeannexv1alpha1.ListedResource{Group: "example.com", Version: version, Resource: "widgets", Namespace: "default"}
	}
	pods := kubeannexv1alpha1.ListedResource{Version: "v1", Resource: "pods", Namespace: "default"}
	nodes := kubeannexv1alpha1.ListedResource{Version: "v1", Resource: "nodes"}
	for name, want := range map[string]kubeannexv1alpha1.ListedResource{
		"pods": pods, "pod": pods, "po": pods, "Pod": pods, "PODS": pods, "pods.v1.": pods, "Pod.v1.": pods,
		"nodes": nodes, "no": nodes, "Node": nodes,
		"widgets": widgets("v2"), "widget": widgets("v2"), "wd": widgets("v2"), "Widget": widgets("v2"),
		"widgets.example.com": widgets("v2"), "widget.example.com": widgets("v2"), "wd.example.com": widgets("v2"), "wd.example": widgets("v2"),
		"Widget.example.com": widgets("v2"), "widgets.v1.example.com": widgets("v1"), "wd.v1.example.com": widgets("v2"), "Widget.v1.example.com": widgets("v1"),
	} {
		t.Run(name, func(t *testing.T) {
			var got *kubeannexv1alpha1.ListedResource
			s := session{args: []string{"explain", name}, answers: func(c *annexfake.Clientset) {
				c.PrependReactor("create", "listreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
					review := action.(clienttesting.CreateAction).GetObject().(*kubeannexv1alpha1.ListReview)
					got = review.Spec.Resource
					return true, review, nil
				})
			}}
			printed := s.run(t)
			if got == nil || *got != want {
				t.Errorf("asked about %+v, want %+v, printed:\n%s", got, want, printed)
			}
		})
	}
}
