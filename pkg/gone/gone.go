// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gone tells objects that are not there from paths that a server does not
// know. Both are answered with 404.
package gone

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object reports whether an error says that a server knows the kind of an object, but
// no object of that name. It is false for no name. A path that is not served is 404 too, but no Status that names
// the object: apiextensions answers so for a version that it does not know yet,
// kube-apiserver for an API group whose APIService it has not seen. Where the answer is no
// Status at all, client-go makes one up and says so by a cause
// (k8s.io/apimachinery pkg/api/errors/errors.go, NewGenericServerResponse).
func Object(err error, name string) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && name != "" && apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		status.ErrStatus.Details != nil && status.ErrStatus.Details.Name == name
}
