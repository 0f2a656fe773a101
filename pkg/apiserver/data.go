// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeannex/annex/pkg/admission/hostapis"
	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/apiserver/importing"
	annexedgroupstorage "github.com/kubeannex/annex/pkg/registry/kubeannex/annexedgroup/storage"
	"github.com/kubeannex/annex/pkg/serving"
)

// groupData reaches the stored objects of adopted groups.
type groupData struct {
	definitions apiextensionslisters.CustomResourceDefinitionLister
	stores      *importing.Stores
	// gate is nil in a server that runs alone.
	gate *serving.Gate
	// probe asks the served versions whether they answer, see cacheProbe.
	probe func(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition) error
	// disabled returns the plug-ins that the cluster cannot feed.
	disabled func() []hostapis.Disabled
}

var _ annexedgroupstorage.Data = groupData{}

// Import implements annexedgroupstorage.Data.
func (d groupData) Import(ctx context.Context, group *kubeannex.AnnexedGroup, resource string, stream io.Reader) (v1alpha1.ImportResult, error) {
	definition, err := d.definition(group.Name, resource)
	if err != nil {
		return v1alpha1.ImportResult{}, err
	}
	leave, err := d.enter(group, "imported", v1alpha1.ServingClosed)
	if err != nil {
		return v1alpha1.ImportResult{}, err
	}
	defer leave()
	version, err := apiextensionshelpers.GetCRDStorageVersion(definition)
	if err != nil {
		return v1alpha1.ImportResult{}, apierrors.NewInternalError(err)
	}
	return d.stores.Import(ctx, importing.Target{
		Resource:   schema.GroupResource{Group: group.Name, Resource: resource},
		Kind:       schema.GroupVersionKind{Group: group.Name, Version: version, Kind: definition.Spec.Names.Kind},
		Namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}, stream)
}

// Drop implements annexedgroupstorage.Data.
func (d groupData) Drop(ctx context.Context, group *kubeannex.AnnexedGroup, resource string) (v1alpha1.ImportResult, error) {
	resources := []string{resource}
	if resource == "" {
		definitions, err := d.definitionsOf(group.Name)
		if err != nil {
			return v1alpha1.ImportResult{}, err
		}
		resources = nil
		for _, definition := range definitions {
			resources = append(resources, definition.Spec.Names.Plural)
		}
	} else if _, err := d.definition(group.Name, resource); err != nil {
		return v1alpha1.ImportResult{}, err
	}
	leave, err := d.enter(group, "dropped", v1alpha1.ServingClosed, v1alpha1.ServingReleased)
	if err != nil {
		return v1alpha1.ImportResult{}, err
	}
	defer leave()
	var result v1alpha1.ImportResult
	for _, name := range resources {
		deleted, err := d.stores.Drop(ctx, schema.GroupResource{Group: group.Name, Resource: name})
		if err != nil {
			return v1alpha1.ImportResult{}, err
		}
		result.Deleted += deleted
	}
	return result, nil
}

// Digest implements annexedgroupstorage.Data.
func (d groupData) Digest(ctx context.Context, group *kubeannex.AnnexedGroup, resource string) (v1alpha1.ResourceDigest, error) {
	if _, err := d.definition(group.Name, resource); err != nil {
		return v1alpha1.ResourceDigest{}, err
	}
	return d.stores.Digest(ctx, schema.GroupResource{Group: group.Name, Resource: resource})
}

// enter lets a change of the stored data begin when nobody is served from them:
// neither by the stored object, which is newer, nor by what this process has in force.
func (d groupData) enter(group *kubeannex.AnnexedGroup, done string, allowed ...v1alpha1.ServingMode) (leave func(), err error) {
	stored := v1alpha1.ServingMode(group.Status.Serving)
	if stored == "" {
		stored = v1alpha1.ServingClosed
	}
	if !slices.Contains(allowed, stored) {
		return nil, notAllowed(group.Name, done, stored, allowed)
	}
	if d.gate == nil {
		return func() {}, nil
	}
	leave, mode, ok := d.gate.Enter(group.Name, allowed...)
	switch {
	case ok:
		return leave, nil
	case mode == "" || slices.Contains(allowed, mode):
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("this replica has not closed %s yet", group.Name), retryAfterSeconds)
	default:
		return nil, notAllowed(group.Name, done, mode, allowed)
	}
}

// retryAfterSeconds is how long a client waits for what a replica has not seen yet.
const retryAfterSeconds = 1

func notAllowed(group, done string, mode v1alpha1.ServingMode, allowed []v1alpha1.ServingMode) error {
	names := make([]string, len(allowed))
	for i := range allowed {
		names[i] = string(allowed[i])
	}
	return apierrors.NewConflict(kubeannex.Resource("annexedgroups"), group,
		fmt.Errorf("its objects can only be %s while status.serving is %s, not %s", done, strings.Join(names, " or "), mode))
}

// definition is that of a resource of the group.
func (d groupData) definition(group, resource string) (*apiextensionsv1.CustomResourceDefinition, error) {
	name := resource + "." + group
	definition, err := d.definitions.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), name)
	}
	return definition, err
}

// definitionsOf are those of the group, sorted by name.
func (d groupData) definitionsOf(group string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	all, err := d.definitions.List(labels.Everything())
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, definition := range all {
		if definition.Spec.Group == group {
			definitions = append(definitions, definition)
		}
	}
	slices.SortFunc(definitions, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return strings.Compare(a.Name, b.Name) })
	return definitions, nil
}
