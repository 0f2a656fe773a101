// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/tls"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// serve presents the certificate of a Secret and returns how it is reached.
func serve(t *testing.T, secret *corev1.Secret) *cluster.Server {
	t.Helper()
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewUnstartedServer(nil)
	listener.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	listener.StartTLS()
	t.Cleanup(listener.Close)
	return &cluster.Server{Name: "annex-apiserver " + listener.URL, Config: &rest.Config{
		Host: listener.URL, TLSClientConfig: rest.TLSClientConfig{ServerName: annexName},
	}}
}

func endpoints(servers ...*cluster.Server) cluster.Endpoints {
	return func(context.Context) ([]*cluster.Server, error) { return servers, nil }
}

func TestPresented(t *testing.T) {
	w := newWorld(t)
	w.live()
	w.sync()
	before := serve(t, w.secret(ServerSecret))
	first := w.state().current.cert
	w.ask()
	w.rotate()
	after := serve(t, w.secret(ServerSecret))
	second := w.state().current.cert
	both := append(w.bundle(), w.history[0].bundle...)
	gone := serve(t, w.secret(ServerSecret))
	gone.Config.Host = "https://127.0.0.1:1"
	cases := map[string]struct {
		servers []cluster.Endpoints
		bundle  []byte
		want    string
	}{
		"all new":            {servers: []cluster.Endpoints{endpoints(after), endpoints(after, after)}, bundle: both},
		"an old one":         {servers: []cluster.Endpoints{endpoints(after), endpoints(after, before)}, bundle: both, want: "it presents a certificate of another authority still"},
		"one that is away":   {servers: []cluster.Endpoints{endpoints(after, gone)}, bundle: both, want: "connect: connection refused"},
		"one of a stranger":  {servers: []cluster.Endpoints{endpoints(before)}, bundle: w.bundle(), want: "unknown authority"},
		"nobody is expected": {bundle: both},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := (&Witness{Servers: tc.servers}).Presented(t.Context(), tc.bundle, second)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if err := (&Witness{Servers: []cluster.Endpoints{endpoints(before)}}).Presented(t.Context(), both, first); err != nil {
		t.Error(err)
	}
}

// TestTold has a kube-apiserver whose cache is behind.
func TestTold(t *testing.T) {
	w, behind := newWorld(t), newWorld(t)
	bundles := w.bundles()
	servers := []*cluster.Server{bundles.Host, {Name: "kube-apiserver 2", Kube: behind.kube, APIServices: behind.services}}
	witness := &Witness{CABundles: bundles, Hosts: endpoints(servers...)}
	if err := bundles.Apply(t.Context(), []byte("new"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	err := witness.Told(t.Context(), []byte("new"))
	if err == nil || strings.Contains(err.Error(), "the cluster") || !strings.Contains(err.Error(), "kube-apiserver 2: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line about the server that is behind", err)
	}
	for _, action := range behind.kube.Actions() {
		if verb := action.GetVerb(); verb != "list" {
			t.Errorf("the server that was asked got a %s", verb)
		}
	}
	other := behind.bundles()
	if err := other.Apply(t.Context(), []byte("new"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := witness.Told(t.Context(), []byte("new")); err != nil {
		t.Error(err)
	}
}
