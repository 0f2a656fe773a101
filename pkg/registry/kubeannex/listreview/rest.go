// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package listreview serves ListReviews: what is created is answered and not stored.
package listreview

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// Explainer explains lists.
type Explainer interface {
	// Explain tells what the list is served from and what it costs, for the user in
	// the context. Its errors are API statuses.
	Explain(ctx context.Context, spec *kubeannex.ListReviewSpec) (*kubeannex.ListReviewStatus, error)
}

// REST serves "listreviews".
type REST struct {
	explainer Explainer
}

var (
	_ rest.Creater              = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// NewREST returns the endpoint that asks the explainer.
func NewREST(explainer Explainer) *REST {
	return &REST{explainer: explainer}
}

// New implements rest.Storage.
func (*REST) New() runtime.Object { return &kubeannex.ListReview{} }

// Destroy implements rest.Storage. There is nothing to stop.
func (*REST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*REST) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (*REST) GetSingularName() string { return "listreview" }

// Create answers the review. A status in the object is replaced.
func (r *REST) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review, ok := object.(*kubeannex.ListReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a ListReview: %T", object))
	}
	if validate != nil {
		if err := validate(ctx, review.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	status, err := r.explainer.Explain(ctx, &review.Spec)
	if err != nil {
		return nil, err
	}
	answered := review.DeepCopy()
	answered.Status = *status
	return answered, nil
}
