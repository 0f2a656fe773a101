// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// createPolicy creates a policy or a binding until the test ends.
func createPolicy(t *testing.T, object runtime.Object) {
	t.Helper()
	client := suite.kube.AdmissionregistrationV1()
	switch object := object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		create(t, object, object.Name, client.ValidatingAdmissionPolicies())
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		create(t, object, object.Name, client.ValidatingAdmissionPolicyBindings())
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		create(t, object, object.Name, client.MutatingAdmissionPolicies())
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		create(t, object, object.Name, client.MutatingAdmissionPolicyBindings())
	default:
		t.Fatalf("%T is no policy", object)
	}
}

type creator[T any] interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

func create[T any](t *testing.T, object T, name string, client creator[T]) {
	t.Helper()
	if _, err := client.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
