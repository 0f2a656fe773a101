// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	storageerrors "k8s.io/apiserver/pkg/storage/errors"
)

// ReasonInsufficientStorage is the reason of a status that says that etcd is full.
const ReasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"

// storageError makes an API status error of what storage answered about an
// object. It leaves those alone that are one. An empty name is the whole resource.
func storageError(err error, resource schema.GroupResource, name string) error {
	if _, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return err
	}
	what := resource.String()
	if name != "" {
		what += " " + name
	}
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: ReasonInsufficientStorage,
			Message: fmt.Sprintf("%s: etcd is full: raise its quota or compact and defragment it, then run etcdctl alarm disarm", what),
			Details: &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: name},
		}}
	case errors.Is(err, rpctypes.ErrRequestTooLarge), isTooLargeForClient(err):
		return tooLarge(what, "it is larger than etcd takes: raise its --max-request-bytes, or --embedded-etcd-max-request-bytes of annex-apiserver")
	case storage.IsUnreachable(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), isTransient(err):
		return apierrors.NewTimeoutError(fmt.Sprintf("%s: %v", what, err), retryAfterSeconds)
	default:
		return apierrors.NewInternalError(fmt.Errorf("%s: %w", what, err))
	}
}

// retryAfterSeconds is what a client is told to wait when etcd did not answer in time.
const retryAfterSeconds = 1

// listError is storageError for reading a whole resource.
func listError(err error, resource schema.GroupResource) error {
	return storageError(storageerrors.InterpretListError(err, resource), resource, "")
}

func tooLarge(name, message string) error {
	return apierrors.NewRequestEntityTooLargeError(name + ": " + message)
}

// isTooLargeForClient recognises the limit of etcd's client, which has no error of its own.
func isTooLargeForClient(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "message larger than max")
}

// isTransient recognises an etcd that has no leader or is being restarted.
func isTransient(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	if etcdError, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return etcdError.Code() == codes.Unavailable
	}
	return false
}
