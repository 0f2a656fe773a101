// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ensure writes the objects that the controller keeps in the cluster.
package ensure

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// Client is the part of a typed client that Object needs.
type Client[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
}

// Object creates an object, or changes the one of its name. Change makes what is
// stored what it has to be and says whether that changed anything: nothing is
// written otherwise. It is called again when somebody else writes meanwhile.
func Object[T metav1.Object](ctx context.Context, client Client[T], want T, change func(have T) bool) error {
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultBackoff, again, func() error {
		have, err := client.Get(ctx, want.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, want, metav1.CreateOptions{})
			return err
		}
		if err != nil || !change(have) {
			return err
		}
		_, err = client.Update(ctx, have, metav1.UpdateOptions{})
		return err
	})
}

// Webhooks creates a configuration or gives it the wanted webhooks. Fields that
// the cluster has defaulted make no difference.
func Webhooks(ctx context.Context, client kubernetes.Interface, want *admissionregistrationv1.ValidatingWebhookConfiguration) error {
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	return Object(ctx, configurations, want, func(have *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
		same := apiequality.Semantic.DeepDerivative(want.Webhooks, have.Webhooks)
		have.Webhooks = want.Webhooks
		return !same
	})
}
