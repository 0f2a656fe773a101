// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package gone

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestObject(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"nothing happened":                       {nil, false},
		"the object is not there":                {apierrors.NewNotFound(widgets, "w"), true},
		"the same, wrapped":                      {fmt.Errorf("reading: %w", apierrors.NewNotFound(widgets, "w")), true},
		"another object is not there":            {apierrors.NewNotFound(widgets, "namespace"), false},
		"a Status that names nothing":            {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}, false},
		"a page that is no Status":               {apierrors.NewGenericServerResponse(http.StatusNotFound, "get", widgets, "w", "404 page not found", 0, true), false},
		"another one was deleted in its place":   {apierrors.NewConflict(widgets, "w", errors.New("uid")), false},
		"a server that could not be reached":     {errors.New("connection refused"), false},
		"an object that may not be read by name": {apierrors.NewForbidden(widgets, "w", nil), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Object(tc.err, "w"); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
