// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package listprofile serves ListProfiles: who reads what, at what cost. They are
// not stored as objects are: processes count, and tell each other.
package listprofile

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// Source has the profiles.
type Source interface {
	// Profiles returns all profiles, the worst first. The caller owns them. A warning
	// says in one line what is missing and why; it is empty if nothing is.
	Profiles(ctx context.Context) (list *kubeannex.ListProfileList, warning string)
}

var (
	_ rest.Storage              = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.KindProvider         = &REST{}
	_ rest.SingularNameProvider = &REST{}
	_ rest.Getter               = &REST{}
	_ rest.Lister               = &REST{}
)

// REST serves "listprofiles".
type REST struct {
	TableConvertor

	source Source
}

// NewREST returns the endpoint of a source.
func NewREST(source Source) *REST {
	return &REST{source: source}
}

// New implements rest.Storage.
func (r *REST) New() runtime.Object { return &kubeannex.ListProfile{} }

// NewList implements rest.Lister.
func (r *REST) NewList() runtime.Object { return &kubeannex.ListProfileList{} }

// Destroy implements rest.Storage. There is nothing to release.
func (r *REST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r *REST) NamespaceScoped() bool { return false }

// Kind implements rest.KindProvider.
func (r *REST) Kind() string { return "ListProfile" }

// GetSingularName implements rest.SingularNameProvider.
func (r *REST) GetSingularName() string { return "listprofile" }

// Get returns the profile of that name.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	profiles := r.profiles(ctx)
	for i := range profiles.Items {
		if profiles.Items[i].Name == name {
			return &profiles.Items[i], nil
		}
	}
	return nil, apierrors.NewNotFound(kubeannex.Resource("listprofiles"), name)
}

// List returns the profiles that match the selectors, the worst first and all of
// them: a limit is ignored, and so is a resourceVersion, as there are no versions.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	profiles := r.profiles(ctx)
	byLabel, byField := selectors(options)
	if byLabel.Empty() && byField.Empty() {
		return profiles, nil
	}
	matching := make([]kubeannex.ListProfile, 0, len(profiles.Items))
	for _, profile := range profiles.Items {
		if byLabel.Matches(labels.Set(profile.Labels)) && byField.Matches(fields.Set{metav1.ObjectNameField: profile.Name}) {
			matching = append(matching, profile)
		}
	}
	profiles.Items = matching
	return profiles, nil
}

func (r *REST) profiles(ctx context.Context) *kubeannex.ListProfileList {
	profiles, missing := r.source.Profiles(ctx)
	warning.AddWarning(ctx, "", missing)
	return profiles
}

func selectors(options *metainternalversion.ListOptions) (labels.Selector, fields.Selector) {
	byLabel, byField := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		byLabel = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		byField = options.FieldSelector
	}
	return byLabel, byField
}
