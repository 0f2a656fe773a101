// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"testing"

	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/explain"
	"github.com/kubeannex/annex/pkg/serving"
)

// noHost is a cluster that has nothing.
type noHost struct{ explain.Host }

func (noHost) Resource(_ context.Context, resource schema.GroupVersionResource) (metav1.APIResource, error) {
	return metav1.APIResource{}, apierrors.NewNotFound(resource.GroupResource(), "")
}

// TestExplainBeforeTheGateHasSynced explains lists while nothing is known of groups: an
// adopted one must not be looked for at the cluster, where it may be missing.
func TestExplainBeforeTheGateHasSynced(t *testing.T) {
	gate := serving.NewGate(nil)
	kept := keptHere(apiextensionslisters.NewCustomResourceDefinitionLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})), gate)
	notFound := http.HandlerFunc(http.NotFound)
	explainer := explain.New(explain.Config{
		Handler: gate.Handler(notFound, Codecs, kubeannex.GroupName), Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
		Host: noHost{}, KeptHere: kept,
	})
	for path, resource := range map[string]schema.GroupResource{
		"/api/v1/pods": {Resource: "pods"},
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	} {
		if kept(resource) {
			t.Errorf("%s: kept by annex, want by the cluster", path)
		}
	}
	for _, path := range []string{"/apis/lab.annex.test/v1/gadgets", "/apis/apps/v1/deployments"} {
		ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "ada"})
		_, err := explainer.Explain(ctx, &kubeannex.ListReviewSpec{Path: path})
		if after, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !ok || after != 1 {
			t.Errorf("%s: got %v, want 503 with Retry-After", path, err)
		}
	}
	if !kept(schema.GroupResource{Group: kubeannex.GroupName, Resource: "annexedgroups"}) {
		t.Error("AnnexedGroups: kept by the cluster, want by annex")
	}
}
