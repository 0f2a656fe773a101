// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every type in this package.
const GroupName = "kubeannex.io"

var (
	// SchemeGroupVersion is the group version of this package. It must not be modified.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
	// SchemeBuilder collects the functions that AddToScheme runs. The generated
	// conversions add themselves to it through localSchemeBuilder.
	SchemeBuilder      = runtime.NewSchemeBuilder(addKnownTypes, addDefaultingFuncs, addFieldLabelConversions)
	localSchemeBuilder = &SchemeBuilder
	// AddToScheme registers the types, defaults, conversions and field selectors
	// of this version in a scheme.
	AddToScheme = localSchemeBuilder.AddToScheme
)

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
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}

// addFieldLabelConversions declares the fields that a field selector may name.
// The list must match SelectableFields in pkg/registry/kubeannex/annexedgroup.
func addFieldLabelConversions(scheme *runtime.Scheme) error {
	return scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind("AnnexedGroup"),
		func(label, value string) (string, string, error) {
			switch label {
			case "metadata.name", "status.phase":
				return label, value, nil
			default:
				return "", "", fmt.Errorf("field label %q not supported for AnnexedGroup: select by metadata.name or status.phase", label)
			}
		})
}
