// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"bytes"
	"context"
	"runtime/pprof"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// TestTooLargeResourceVersion asks by client-go for a revision that etcd has
// not reached. The error must be one that clients recognise by its cause, it
// must tell when to come again, and nothing may go on waiting for it.
func TestTooLargeResourceVersion(t *testing.T) {
	config := rest.CopyConfig(shared.running.Config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	gadgets := shared.resources[0].path("a")
	future := shared.resourceVersion(rvFuture)
	var group errgroup.Group
	for name, request := range map[string]*rest.Request{
		"GET":         client.Get().AbsPath(gadgets + "/beta"),
		"LIST":        client.Get().AbsPath(gadgets),
		"LIST, Exact": client.Get().AbsPath(gadgets).Param("resourceVersionMatch", "Exact"),
		"LIST, limit": client.Get().AbsPath(gadgets).Param("limit", "1"),
	} {
		group.Go(func() error {
			// client-go would come again by itself, ten times.
			checkTooLarge(t, name, request.Param("resourceVersion", future).MaxRetries(0).Do(t.Context()).Error())
			return nil
		})
	}
	group.Wait() //nolint:errcheck // failures are reported above
	waitForNoWaiters(t)
}

func checkTooLarge(t *testing.T, name string, err error) {
	t.Helper()
	if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("%s: %v, want a Timeout with cause %s", name, err, metav1.CauseTypeResourceVersionTooLarge)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 1 {
		t.Errorf("%s: retry after %d s (%t), want 1", name, seconds, ok)
	}
}

// waitForNoWaiters fails when a goroutine goes on waiting in the cache for a
// revision.
func waitForNoWaiters(t *testing.T) {
	t.Helper()
	const waiter = "waitUntilFreshLocked"
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, 2*cacheTimeout, true, func(context.Context) (bool, error) {
		var stacks bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
			return false, err
		}
		return !bytes.Contains(stacks.Bytes(), []byte(waiter)), nil
	})
	if err != nil {
		t.Errorf("a goroutine is left in %s: %v", waiter, err)
	}
}
