// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMayBeCreated(t *testing.T) {
	cases := map[string]struct {
		group, approved string
		want            bool
	}{
		"a group of its own":                        {group: "example.com", want: true},
		"a protected group":                         {group: "policy.k8s.io", approved: "https://github.com/kubernetes/enhancements/pull/1", want: true},
		"a protected group with a reason":           {group: "policy.k8s.io", approved: "unapproved, experimental", want: true},
		"a protected group that says nothing":       {group: "policy.k8s.io", want: false},
		"a protected group with a meaningless text": {group: "policy.k8s.io", approved: "yes", want: false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: tc.group}}
			if tc.approved != "" {
				definition.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: tc.approved}}
			}
			if got := mayBeCreated(definition); got != tc.want {
				t.Errorf("may be created: %t, want %t", got, tc.want)
			}
		})
	}
}
