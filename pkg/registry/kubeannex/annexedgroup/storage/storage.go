// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage assembles the REST endpoints of AnnexedGroups on upstream's
// generic registry.
package storage

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/registry/kubeannex/annexedgroup"
)

// Storage holds the endpoints of one resource. Hand the same values to every
// served version: each NewStorage makes its own watch cache.
type Storage struct {
	// AnnexedGroup serves "annexedgroups". It owns the watch cache; the server
	// that it is installed in destroys it.
	AnnexedGroup *REST
	// Status serves "annexedgroups/status" from the same store.
	Status *StatusREST
}

// NewStorage builds the endpoints. The scheme must know the kubeannex.io types
// (install.Install); getter says where and how objects are stored. With
// upstream's SimpleStorageFactory and the prefix /registry the keys are
// /registry/kubeannex.io/annexedgroups/<name>.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (Storage, error) {
	strategy := annexedgroup.NewStrategy(scheme)
	statusStrategy := annexedgroup.NewStatusStrategy(strategy)
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &kubeannex.AnnexedGroup{} },
		NewListFunc:               func() runtime.Object { return &kubeannex.AnnexedGroupList{} },
		DefaultQualifiedResource:  kubeannex.Resource("annexedgroups"),
		SingularQualifiedResource: kubeannex.Resource("annexedgroup"),

		CreateStrategy:      strategy,
		UpdateStrategy:      strategy,
		DeleteStrategy:      strategy,
		ResetFieldsStrategy: strategy,

		TableConvertor: annexedgroup.TableConvertor{},
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: annexedgroup.GetAttrs}); err != nil {
		return Storage{}, fmt.Errorf("building the AnnexedGroup store: %w", err)
	}

	statusStore := *store
	statusStore.UpdateStrategy = statusStrategy
	statusStore.ResetFieldsStrategy = statusStrategy
	return Storage{AnnexedGroup: &REST{store}, Status: &StatusREST{store: &statusStore}}, nil
}

var (
	_ rest.StandardStorage      = (*REST)(nil)
	_ rest.ShortNamesProvider   = (*REST)(nil)
	_ rest.CategoriesProvider   = (*REST)(nil)
	_ rest.SingularNameProvider = (*REST)(nil)
	_ rest.ResetFieldsStrategy  = (*REST)(nil)
)

// REST serves AnnexedGroups.
type REST struct {
	*genericregistry.Store
}

// ShortNames lets kubectl users write "ag".
func (r *REST) ShortNames() []string { return []string{"ag"} }

// Categories lets kubectl users list everything of annex with "kubectl get annex".
func (r *REST) Categories() []string { return []string{"annex"} }

var (
	_ rest.Getter              = (*StatusREST)(nil)
	_ rest.Updater             = (*StatusREST)(nil)
	_ rest.Patcher             = (*StatusREST)(nil)
	_ rest.Storage             = (*StatusREST)(nil)
	_ rest.TableConvertor      = (*StatusREST)(nil)
	_ rest.ResetFieldsStrategy = (*StatusREST)(nil)
)

// StatusREST serves the status subresource of AnnexedGroups.
type StatusREST struct {
	store *genericregistry.Store
}

// New returns an empty AnnexedGroup.
func (r *StatusREST) New() runtime.Object { return &kubeannex.AnnexedGroup{} }

// Destroy does nothing: REST shares the store and destroys it.
func (r *StatusREST) Destroy() {}

// Get returns the object. PATCH needs it.
func (r *StatusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update changes the status. A subresource never creates its object, whatever
// the caller allows.
func (r *StatusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// GetResetFields names what a status update cannot change.
func (r *StatusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// ConvertToTable prints the object like the main resource.
func (r *StatusREST) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, tableOptions)
}
