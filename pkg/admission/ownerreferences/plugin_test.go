// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package ownerreferences

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Verdicts are compared with those of kube-apiserver in test/admission.

func reference(uid types.UID, block *bool) metav1.OwnerReference {
	return metav1.OwnerReference{UID: uid, BlockOwnerDeletion: block}
}

func TestBlocking(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	for name, tc := range map[string]struct {
		before, after, want []metav1.OwnerReference
	}{
		"nothing":                    {},
		"a new one":                  {after: []metav1.OwnerReference{reference("a", yes)}, want: []metav1.OwnerReference{reference("a", yes)}},
		"a new one that does not":    {after: []metav1.OwnerReference{reference("a", no), reference("b", nil)}},
		"an old one":                 {before: []metav1.OwnerReference{reference("a", yes)}, after: []metav1.OwnerReference{reference("a", yes)}},
		"an old one that does now":   {before: []metav1.OwnerReference{reference("a", no)}, after: []metav1.OwnerReference{reference("a", yes)}, want: []metav1.OwnerReference{reference("a", yes)}},
		"an old one without a value": {before: []metav1.OwnerReference{reference("a", nil)}, after: []metav1.OwnerReference{reference("a", yes)}, want: []metav1.OwnerReference{reference("a", yes)}},
		"one beside an old one": {
			before: []metav1.OwnerReference{reference("a", yes)},
			after:  []metav1.OwnerReference{reference("b", yes), reference("a", yes)},
			want:   []metav1.OwnerReference{reference("b", yes)},
		},
		"one that was there twice": {
			before: []metav1.OwnerReference{reference("a", yes), reference("a", no)},
			after:  []metav1.OwnerReference{reference("a", yes)},
			want:   []metav1.OwnerReference{reference("a", yes)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, blocking(tc.before, tc.after)); diff != "" {
				t.Errorf("references (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateInitialization(t *testing.T) {
	if err := New().ValidateInitialization(); err == nil {
		t.Error("a plug-in without an authorizer is complete")
	}
}
