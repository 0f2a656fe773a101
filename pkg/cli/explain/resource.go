// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// resource finds what Target names. Only resources that have namespaces keep the namespace.
func (o *Options) resource(namespace string) (*kubeannexv1alpha1.ListedResource, error) {
	mapper, err := o.factory.Mapper()
	if err != nil {
		return nil, err
	}
	mapping, err := mappingOf(mapper, o.Target)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		namespace = ""
	}
	return &kubeannexv1alpha1.ListedResource{
		Group: mapping.Resource.Group, Version: mapping.Resource.Version, Resource: mapping.Resource.Resource, Namespace: namespace,
	}, nil
}

// mappingOf finds a resource by a name in the order of kubectl, whose errors it has
// too (k8s.io/cli-runtime pkg/resource, Builder): as a resource with its version,
// as one in any version, as a kind with its version, as one in any version.
func mappingOf(mapper meta.RESTMapper, name string) (*meta.RESTMapping, error) {
	versioned, anyVersion := schema.ParseResourceArg(name)
	resources := []schema.GroupVersionResource{anyVersion.WithVersion("")}
	if versioned != nil {
		resources = append([]schema.GroupVersionResource{*versioned}, resources...)
	}
	for _, resource := range resources {
		if kind, err := mapper.KindFor(resource); err == nil && !kind.Empty() {
			return mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
	}
	versionedKind, anyKind := schema.ParseKindArg(name)
	if versionedKind != nil {
		if mapping, err := mapper.RESTMapping(versionedKind.GroupKind(), versionedKind.Version); err == nil {
			return mapping, nil
		}
	}
	mapping, err := mapper.RESTMapping(anyKind)
	switch {
	case err == nil:
		return mapping, nil
	case !meta.IsNoMatchError(err):
		return nil, fmt.Errorf("asking the server for its resources: %w", err)
	case anyVersion.Group != "":
		return nil, fmt.Errorf("the server doesn't have a resource type %q in group %q", anyVersion.Resource, anyVersion.Group)
	}
	return nil, fmt.Errorf("the server doesn't have a resource type %q", anyVersion.Resource)
}
