// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// TestOnlyObjectsAreGone has a server that answers everything with 404, once for objects
// that it does not have, once for paths that it does not know. Of those nothing is known:
// whatever is done has to fail, and be done again.
func TestOnlyObjectsAreGone(t *testing.T) {
	gadgets := resource{plural: "gadgets", storage: schema.GroupVersionResource{Group: labGroup, Version: "v1", Resource: "gadgets"}}
	now := metav1.Now()
	have := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "u", Finalizers: []string{"f"}}}
	half := have.DeepCopy()
	half.DeletionTimestamp = &now
	owned := dependent{resource: gadgets.storage, namespace: "ns", name: "g"}
	for name, do := range map[string]func(context.Context, *Reconciler) error{
		"reading what has changed at the host": func(ctx context.Context, r *Reconciler) error {
			return r.fetch(ctx, &importer{resource: gadgets}, []string{"ns/g"})
		},
		"reading what has changed in annex": func(ctx context.Context, r *Reconciler) error { return roundWith(r, gadgets).fetch(ctx, "ns/g") },
		"removing a copy":                   func(ctx context.Context, r *Reconciler) error { return roundWith(r, gadgets).removeCopy(ctx, "ns/g") },
		"deleting a copy": func(ctx context.Context, r *Reconciler) error {
			return roundWith(r, gadgets).writer.Delete(ctx, have)
		},
		"taking the finalizers off": func(ctx context.Context, r *Reconciler) error {
			return roundWith(r, gadgets).writer.Delete(ctx, half)
		},
		"repairing a dependent": func(ctx context.Context, r *Reconciler) error {
			return r.repair(ctx, owned, hostcopy.Owners{"old": "new"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tc := range []struct {
				name     string
				answer   http.HandlerFunc
				wantFail bool
			}{
				{name: "an object", answer: func(w http.ResponseWriter, r *http.Request) {
					status := apierrors.NewNotFound(gadgets.storage.GroupResource(), path.Base(r.URL.Path)).Status()
					status.APIVersion, status.Kind = "v1", "Status"
					answer(w, http.StatusNotFound, status)
				}},
				{name: "a path", answer: http.NotFound, wantFail: true},
				{name: "a version", answer: func(w http.ResponseWriter, _ *http.Request) {
					refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
				}, wantFail: true},
			} {
				if err := do(t.Context(), reconcilerOf(t, tc.answer)); (err != nil) != tc.wantFail {
					t.Errorf("%s is not there: got error %v", tc.name, err)
				}
			}
		})
	}
}

// reconcilerOf has one server for everything.
func reconcilerOf(t *testing.T, handler http.HandlerFunc) *Reconciler {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	both, err := cluster.NewServer("both", &rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &Reconciler{Connections: cluster.Connections{Host: both, Annex: both}}
}

func roundWith(r *Reconciler, res resource) *releaseRound {
	return &releaseRound{
		r: r, copies: &releaseCopies{resource: res},
		writer: &hostcopy.Writer{Client: r.Connections.Host.Dynamic, Resource: res.private()},
	}
}
