// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeannex

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every type in this package.
const GroupName = "kubeannex.io"

var (
	// SchemeGroupVersion is the internal group version. It must not be modified.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: runtime.APIVersionInternal}
	// SchemeBuilder collects the functions that AddToScheme runs.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme registers the internal types in a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Kind returns the group kind of an unqualified kind of this group.
func Kind(kind string) schema.GroupKind {
	return SchemeGroupVersion.WithKind(kind).GroupKind()
}

// Resource returns the group resource of an unqualified plural of this group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&AnnexedGroup{},
		&AnnexedGroupList{},
		&ListProfile{},
		&ListProfileList{},
		&ListReview{},
	)
	return nil
}
