// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package readiness makes writes wait until admission knows the objects of the
// cluster that it decides by.
package readiness

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

const (
	// patience is how long a write waits, as long as with the plug-ins of upstream
	// (k8s.io/apiserver pkg/admission/handler.go, timeToWaitForReady).
	patience = 10 * time.Second
	// retryAfterSeconds is when a refused client is asked to come back.
	retryAfterSeconds = 1
)

// Chain is an admission chain of mutating and validating plug-ins.
type Chain interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// Wait puts a wait for synced before a chain. Each plug-in of upstream waits by itself
// and then answers 403, which clients do not try again. kube-apiserver asks itself for
// what they need and has it at once; here the cluster may be away when the server starts.
// So it is 503 with Retry-After.
func Wait(inner Chain, synced <-chan struct{}) Chain {
	return &waiting{inner: inner, synced: synced, patience: patience}
}

var _ Chain = &waiting{}

type waiting struct {
	inner    Chain
	synced   <-chan struct{}
	patience time.Duration
}

// Handles implements admission.Interface.
func (w *waiting) Handles(operation admission.Operation) bool { return w.inner.Handles(operation) }

// Admit implements admission.MutationInterface.
func (w *waiting) Admit(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	if err := w.wait(ctx); err != nil {
		return err
	}
	return w.inner.Admit(ctx, attributes, objects)
}

// Validate implements admission.ValidationInterface.
func (w *waiting) Validate(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	if err := w.wait(ctx); err != nil {
		return err
	}
	return w.inner.Validate(ctx, attributes, objects)
}

func (w *waiting) wait(ctx context.Context) error {
	select {
	case <-w.synced:
		return nil
	default:
	}
	timer := time.NewTimer(w.patience)
	defer timer.Stop()
	select {
	case <-w.synced:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	err := apierrors.NewServiceUnavailable("the server has not read the namespaces, webhooks, policies and quotas of the cluster yet, by which it admits writes")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	return err
}
