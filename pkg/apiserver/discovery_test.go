// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// definition is an established definition whose versions are served, but for those that begin with "-".
func definition(group string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: group}}
	for _, v := range versions {
		served := v[0] != '-'
		if !served {
			v = v[1:]
		}
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v, Served: served})
	}
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
	}}
	return crd
}

func unestablished(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd.Status.Conditions = nil
	return crd
}

func TestDiscoveryGroup(t *testing.T) {
	tests := map[string]struct {
		definitions []*apiextensionsv1.CustomResourceDefinition
		want        []string // versions in order; none means that the group is not served
	}{
		"no definition": {},
		"another group": {
			definitions: []*apiextensionsv1.CustomResourceDefinition{definition("other.test", "v1")},
		},
		"a definition that is not established": {
			definitions: []*apiextensionsv1.CustomResourceDefinition{unestablished(definition("lab.test", "v1"))},
		},
		"no version is served": {
			definitions: []*apiextensionsv1.CustomResourceDefinition{definition("lab.test", "-v1")},
		},
		"the most stable version comes first": {
			definitions: []*apiextensionsv1.CustomResourceDefinition{definition("lab.test", "v1alpha1", "v1", "v2beta1", "v10", "-v11")},
			want:        []string{"v10", "v1", "v2beta1", "v1alpha1"},
		},
		"versions of several definitions are joined": {
			definitions: []*apiextensionsv1.CustomResourceDefinition{
				definition("lab.test", "v1", "v1beta1"),
				definition("lab.test", "v1", "v2"),
				unestablished(definition("lab.test", "v3")),
			},
			want: []string{"v2", "v1", "v1beta1"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			group, served := discoveryGroup("lab.test", tc.definitions)
			want := metav1.APIGroup{}
			for _, v := range tc.want {
				entry := metav1.GroupVersionForDiscovery{GroupVersion: "lab.test/" + v, Version: v}
				want.Versions = append(want.Versions, entry)
			}
			if len(want.Versions) > 0 {
				want.Name, want.PreferredVersion = "lab.test", want.Versions[0]
			}
			if served != (len(tc.want) > 0) {
				t.Errorf("served: got %v", served)
			}
			if diff := cmp.Diff(want, group); diff != "" {
				t.Errorf("group (-want +got):\n%s", diff)
			}
		})
	}
}
