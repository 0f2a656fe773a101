// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks writes the webhook configurations that the controller keeps in the cluster.
package webhooks

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// Ensure creates a configuration or gives it the wanted webhooks. It writes
// nothing when they are there, fields that the cluster has defaulted aside.
func Ensure(ctx context.Context, client kubernetes.Interface, want *admissionregistrationv1.ValidatingWebhookConfiguration) error {
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		have, err := configurations.Get(ctx, want.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = configurations.Create(ctx, want, metav1.CreateOptions{})
			return err
		}
		if err != nil || apiequality.Semantic.DeepDerivative(want.Webhooks, have.Webhooks) {
			return err
		}
		have.Webhooks = want.Webhooks
		_, err = configurations.Update(ctx, have, metav1.UpdateOptions{})
		return err
	})
}
