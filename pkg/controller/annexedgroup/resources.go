// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// resource is one resource of a group, as its definition at the host says.
type resource struct {
	// definition is the name of the CustomResourceDefinition, uid and generation tell whether it changed.
	definition string
	uid        types.UID
	generation int64
	// deleting definitions lose their objects without any admission, so no fence would help.
	deleting bool

	plural     string
	kind       string
	namespaced bool
	// storage is the version that objects are copied in.
	storage schema.GroupVersionResource
	// served are the served versions without the private one, sorted.
	served []string
}

// private is the route to the host's own copies while the group is annexed.
func (r resource) private() schema.GroupVersionResource {
	return r.storage.GroupResource().WithVersion(kubeannexv1alpha1.PrivateVersion)
}

// listDefinitions returns the definitions of a group at a server, sorted by name.
func listDefinitions(ctx context.Context, server *cluster.Server, group string) ([]apiextensionsv1.CustomResourceDefinition, error) {
	// Definitions have no field selector for the group.
	list, err := server.Definitions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the CustomResourceDefinitions of %s: %w", server.Name, err)
	}
	definitions := slices.DeleteFunc(list.Items, func(d apiextensionsv1.CustomResourceDefinition) bool { return d.Spec.Group != group })
	slices.SortFunc(definitions, func(a, b apiextensionsv1.CustomResourceDefinition) int { return cmp.Compare(a.Name, b.Name) })
	return definitions, nil
}

// resourcesOf describes the resources of definitions.
func resourcesOf(definitions []apiextensionsv1.CustomResourceDefinition) []resource {
	resources := make([]resource, 0, len(definitions))
	for i := range definitions {
		resources = append(resources, resourceOf(&definitions[i]))
	}
	return resources
}

func resourceOf(definition *apiextensionsv1.CustomResourceDefinition) resource {
	r := resource{
		definition: definition.Name,
		uid:        definition.UID,
		generation: definition.Generation,
		deleting:   definition.DeletionTimestamp != nil,
		plural:     definition.Spec.Names.Plural,
		kind:       definition.Spec.Names.Kind,
		namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	for _, version := range definition.Spec.Versions {
		if version.Storage {
			r.storage = schema.GroupVersionResource{Group: definition.Spec.Group, Version: version.Name, Resource: r.plural}
		}
		if version.Served && version.Name != kubeannexv1alpha1.PrivateVersion {
			r.served = append(r.served, version.Name)
		}
	}
	slices.Sort(r.served)
	return r
}

// servedVersions returns every served version of a group with one resource that has it, sorted.
func servedVersions(resources []resource) []schema.GroupVersionResource {
	var versions []schema.GroupVersionResource
	for _, r := range resources {
		for _, version := range r.served {
			if !slices.ContainsFunc(versions, func(v schema.GroupVersionResource) bool { return v.Version == version }) {
				versions = append(versions, r.storage.GroupResource().WithVersion(version))
			}
		}
	}
	slices.SortFunc(versions, func(a, b schema.GroupVersionResource) int { return cmp.Compare(a.Version, b.Version) })
	return versions
}

// changedSince says which definition is not what the session began with, in
// words; empty when none changed.
func changedSince(s *session, present []resource) string {
	var changes []string
	for _, old := range s.resources {
		i := slices.IndexFunc(present, func(r resource) bool { return r.definition == old.definition })
		switch {
		case i < 0:
			changes = append(changes, old.definition+" was deleted")
		case present[i].uid != old.uid:
			changes = append(changes, old.definition+" was replaced")
		case present[i].deleting:
			changes = append(changes, old.definition+" is being deleted")
		case present[i].generation != old.generation:
			changes = append(changes, old.definition+" was changed")
		}
	}
	for _, r := range present {
		if !slices.ContainsFunc(s.resources, func(old resource) bool { return old.definition == r.definition }) {
			changes = append(changes, r.definition+" was created")
		}
	}
	return strings.Join(changes, ", ")
}

// hostResources reads the resources of a group from the host.
func (r *Reconciler) hostResources(ctx context.Context, group string) ([]resource, error) {
	definitions, err := listDefinitions(ctx, r.Connections.Host, group)
	if err != nil {
		return nil, err
	}
	return resourcesOf(definitions), nil
}
