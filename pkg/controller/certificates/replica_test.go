// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// eventually waits for something that another goroutine does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestReplicaFollows(t *testing.T) {
	w := newWorld(t)
	replica := &Replica{Client: w.kube, Namespace: namespace, Bundle: cluster.NewBundle("ConfigMap " + BundleConfigMap)}
	if replica.NeedLeaderElection() {
		t.Error("it waits for the lease")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- replica.Start(ctx) }()
	if err := replica.Check(nil); err == nil || !strings.Contains(err.Error(), ControllerSecret) {
		t.Errorf("got %v, want what is missing", err)
	}
	w.sync()
	eventually(t, "ready", func() bool { return replica.Check(nil) == nil })
	if string(replica.Bundle.CABundle()) != string(w.bundle()) {
		t.Error("the bundle is another one")
	}
	first, err := replica.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.change(ControllerSecret, func(s *secretType) { s.Data["tls.key"] = []byte("x") })
	w.remove(ControllerSecret)
	if got, err := replica.GetCertificate(nil); err != nil || got != first {
		t.Errorf("got %v, want the certificate of before as long as there is no other", err)
	}
	w.sync()
	eventually(t, "the new certificate", func() bool {
		got, err := replica.GetCertificate(nil)
		return err == nil && got != first && got.Leaf.Equal(w.cert(ControllerSecret))
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestReconcilerTellsAFailureOnce(t *testing.T) {
	w := newWorld(t)
	broken := errors.New("writing the Secret annex-ca: forbidden")
	r := &Reconciler{Store: w.store(), Issuer: w.issuer}
	r.Issuer.Publish = func(context.Context, []byte) error { return broken }
	for range 3 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, broken) {
			t.Fatalf("got %v", err)
		}
	}
	r.Issuer.Publish = func(context.Context, []byte) error { return nil }
	result, err := r.Reconcile(t.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter != longestPause {
		t.Errorf("got %v and %v, want another look after %s", result, err, longestPause)
	}
	var got []string
	for len(w.events.Events) > 0 {
		got = append(got, <-w.events.Events)
	}
	if len(got) != 2 || !strings.Contains(got[0], "AuthorityIssued") || !strings.Contains(got[1], "Warning CertificatesFailed "+broken.Error()) {
		t.Errorf("events %q", got)
	}
}

// TestReconcilerFollowsFiles is for certificates that others issue.
func TestReconcilerFollowsFiles(t *testing.T) {
	w := newWorld(t)
	authority := []byte(nil)
	r := &Reconciler{Store: w.store(), CABundles: w.bundles(), AnnexCA: func() []byte { return authority }, WebhookCA: func() []byte { return []byte("webhooks") }}
	for _, content := range []string{"", "first", "second"} {
		authority = []byte(content)
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if got := w.caBundles()["v1.lab.annex.test"]; got != content {
			t.Errorf("caBundle %q, want %q", got, content)
		}
	}
	if got := w.caBundles()["annex-definitions/a.kubeannex.io"]; got != "webhooks" {
		t.Errorf("caBundle of the webhook %q", got)
	}
}
