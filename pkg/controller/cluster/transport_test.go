// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// selfSigned is a certificate of a server that is its own authority.
func selfSigned(t *testing.T, name string) (*tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"annex.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestServerFollowsItsBundle changes the certificate of a server and the bundle, in
// all orders, without a new client.
func TestServerFollowsItsBundle(t *testing.T) {
	first, firstPEM := selfSigned(t, "first")
	second, secondPEM := selfSigned(t, "second")
	var serving atomic.Pointer[tls.Certificate]
	serving.Store(first)
	listener := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + `"}}`))
	}))
	listener.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return serving.Load(), nil }}
	listener.EnableHTTP2 = true
	listener.StartTLS()
	t.Cleanup(listener.Close)

	bundle := NewBundle("the bundle")
	server, err := NewPool("annex-apiserver", &rest.Config{BearerToken: "me", QPS: -1}, "annex.test").Follow(bundle).Server(listener.URL)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		server.Reconnect()
		got, err := server.Kube.CoreV1().ConfigMaps("ns").Get(t.Context(), "x", metav1.GetOptions{})
		if err == nil && got.Name != "me" {
			t.Errorf("the server was asked as %q", got.Name)
		}
		return err
	}
	steps := []struct {
		what    string
		trusted []byte
		serving *tls.Certificate
		wantErr string
	}{
		{what: "nothing known", serving: first, wantErr: "the bundle names no authority yet"},
		{what: "its own", trusted: firstPEM, serving: first},
		{what: "the next one too", trusted: append(firstPEM, secondPEM...), serving: first},
		{what: "another certificate", trusted: append(firstPEM, secondPEM...), serving: second},
		{what: "only that one", trusted: secondPEM, serving: second},
		{what: "the old certificate", trusted: secondPEM, serving: first, wantErr: "certificate signed by unknown authority"},
	}
	for _, step := range steps {
		serving.Store(step.serving)
		if step.trusted != nil {
			if err := bundle.Set(step.trusted); err != nil {
				t.Fatal(err)
			}
		}
		err := ask()
		if (err == nil) != (step.wantErr == "") || err != nil && !strings.Contains(err.Error(), step.wantErr) {
			t.Errorf("%s: got %v, want %q", step.what, err, step.wantErr)
		}
	}
}

func TestBundle(t *testing.T) {
	_, content := selfSigned(t, "first")
	bundle := NewBundle("the bundle")
	changes := 0
	bundle.OnChange(func() { changes++ })
	for _, bad := range [][]byte{nil, []byte("x")} {
		if err := bundle.Set(bad); err == nil || bundle.CABundle() != nil {
			t.Errorf("%q is taken for authorities: %v", bad, err)
		}
	}
	for range 2 {
		if err := bundle.Set(content); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-bundle.Known():
	default:
		t.Error("it is not known")
	}
	if changes != 1 {
		t.Errorf("told %d times, want once", changes)
	}
	if err := bundle.Set([]byte("x")); err == nil || string(bundle.CABundle()) != string(content) {
		t.Errorf("got %v and %q, want the content of before", err, bundle.CABundle())
	}
}
