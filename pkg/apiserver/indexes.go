// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

var _ annexed.IndexSource = &declaredIndexes{}

// declaredIndexes derives the indexes of custom resources from their definitions
// and from the AnnexedGroups. Before it follows an informer it knows of none.
type declaredIndexes struct {
	lock        sync.Mutex
	definitions apiextensionslisters.CustomResourceDefinitionLister
	groups      cache.Store
	followers   map[*indexFollower]struct{}
}

// indexFollower is the storage of one version of a resource.
type indexFollower struct {
	resource schema.GroupResource
	// fields are the selectable ones. The storage does not outlive a change of them:
	// apiextensions builds it anew when a definition changes.
	fields  []string
	declare func(annexed.Indexes)
}

func newDeclaredIndexes() *declaredIndexes {
	return &declaredIndexes{followers: map[*indexFollower]struct{}{}}
}

// follow starts to obey the AnnexedGroups of an informer that was not started yet.
func (d *declaredIndexes) follow(groups cache.SharedInformer, definitions apiextensionslisters.CustomResourceDefinitionLister) error {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.definitions, d.groups = definitions, groups.GetStore()
	_, err := groups.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    d.groupChanged,
		UpdateFunc: func(_, object any) { d.groupChanged(object) },
		DeleteFunc: d.groupChanged,
	})
	if err != nil {
		return fmt.Errorf("watching AnnexedGroups: %w", err)
	}
	return nil
}

// Follow implements annexed.IndexSource.
func (d *declaredIndexes) Follow(resource schema.GroupResource, example runtime.Object, declare func(annexed.Indexes)) func() {
	d.lock.Lock()
	defer d.lock.Unlock()
	follower := &indexFollower{
		resource: resource,
		fields:   d.selectableFieldsLocked(resource, example.GetObjectKind().GroupVersionKind().Version),
		declare:  declare,
	}
	d.followers[follower] = struct{}{}
	declare(d.indexesLocked(follower))
	return func() {
		d.lock.Lock()
		defer d.lock.Unlock()
		delete(d.followers, follower)
	}
}

// trigger is what watches of one version of a resource are dispatched by.
func (d *declaredIndexes) trigger(resource schema.GroupVersionResource) annexed.Trigger {
	d.lock.Lock()
	defer d.lock.Unlock()
	of := &indexFollower{resource: resource.GroupResource(), fields: d.selectableFieldsLocked(resource.GroupResource(), resource.Version)}
	return d.indexesLocked(of).Trigger
}

// groupChanged tells the storage of a group's resources what is declared now. It
// is told under the lock, so that the newest declaration comes last.
func (d *declaredIndexes) groupChanged(object any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return // nothing but AnnexedGroups and their tombstones comes here
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	for follower := range d.followers {
		if follower.resource.Group == name {
			follower.declare(d.indexesLocked(follower))
		}
	}
}

// selectableFieldsLocked returns the paths in the order of the definition.
func (d *declaredIndexes) selectableFieldsLocked(resource schema.GroupResource, version string) []string {
	if d.definitions == nil {
		return nil
	}
	definition, err := d.definitions.Get(resource.String())
	if err != nil {
		return nil // the definition is on its way out, and its storage with it
	}
	i := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if i < 0 {
		return nil
	}
	var fields []string
	for _, field := range definition.Spec.Versions[i].SelectableFields {
		// As apiextensions names it (pkg/registry/customresource/strategy.go, prepareSelectableFields).
		fields = append(fields, strings.TrimPrefix(field.JSONPath, "."))
	}
	return fields
}

func (d *declaredIndexes) indexesLocked(follower *indexFollower) annexed.Indexes {
	indexes := annexed.Indexes{Fields: follower.fields}
	if len(follower.fields) > 0 {
		indexes.Trigger.Field = follower.fields[0]
	}
	spec, ok := d.specLocked(follower.resource)
	if !ok {
		return indexes
	}
	indexes.Labels = spec.IndexLabels
	switch index := spec.WatchIndex; {
	case index == nil:
	case index.Label != "":
		indexes.Trigger = annexed.Trigger{Label: index.Label}
	case slices.Contains(follower.fields, index.Field), index.Field == "metadata.name", index.Field == "metadata.namespace":
		indexes.Trigger = annexed.Trigger{Field: index.Field}
	}
	return indexes
}

// has reports whether an index of that name is declared for any version of a resource.
func (d *declaredIndexes) has(resource schema.GroupResource, index string) bool {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.definitions == nil {
		return false
	}
	definition, err := d.definitions.Get(resource.String())
	if err != nil {
		return false
	}
	for i := range definition.Spec.Versions {
		fields := d.selectableFieldsLocked(resource, definition.Spec.Versions[i].Name)
		if names(d.indexesLocked(&indexFollower{resource: resource, fields: fields})).Has(index) {
			return true
		}
	}
	return false
}

// names are those of declared indexes.
func names(declared annexed.Indexes) sets.Set[string] {
	all := sets.New[string]()
	for _, field := range append(slices.Clone(declared.Fields), declared.Trigger.Field) {
		if field != "" {
			all.Insert(storage.FieldIndex(field))
		}
	}
	for _, label := range append(slices.Clone(declared.Labels), declared.Trigger.Label) {
		if label != "" {
			all.Insert(storage.LabelIndex(label))
		}
	}
	return all
}

// specLocked is what an AnnexedGroup says of a resource.
func (d *declaredIndexes) specLocked(resource schema.GroupResource) (v1alpha1.AnnexedResourceSpec, bool) {
	if d.groups == nil {
		return v1alpha1.AnnexedResourceSpec{}, false
	}
	object, exists, err := d.groups.GetByKey(resource.Group)
	if err != nil || !exists {
		return v1alpha1.AnnexedResourceSpec{}, false
	}
	group, ok := object.(*v1alpha1.AnnexedGroup)
	if !ok {
		return v1alpha1.AnnexedResourceSpec{}, false
	}
	i := slices.IndexFunc(group.Spec.Resources, func(r v1alpha1.AnnexedResourceSpec) bool { return r.Resource == resource.Resource })
	if i < 0 {
		return v1alpha1.AnnexedResourceSpec{}, false
	}
	return group.Spec.Resources[i], true
}
