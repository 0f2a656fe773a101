// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type secretType = corev1.Secret

func TestFirstIssue(t *testing.T) {
	w := newWorld(t)
	next := w.sync()
	s := w.state()
	if s.step() != "" || s.current == nil {
		t.Fatalf("step %q, want an authority that signs at once", s.step())
	}
	server := w.cert(ServerSecret)
	wantNames := []string{annexName, annexName + "." + domain, "localhost"}
	if diff := cmp.Diff(wantNames, server.DNSNames); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if got, want := server.NotAfter.Sub(w.clock.Now()), w.issuer.Settings.Validity; got != want {
		t.Errorf("valid for %s, want %s", got, want)
	}
	if got, want := next.Sub(w.clock.Now()), 60*24*time.Hour; got != want {
		t.Errorf("looked at again after %s, want %s", got, want)
	}
	if secret := w.secret(ServerSecret); secret.Type != corev1.SecretTypeTLS || !bytes.Equal(secret.Data[authorityKey], w.bundle()) {
		t.Errorf("the Secret has type %s and ca.crt %q", secret.Type, secret.Data[authorityKey])
	}
	w.kube.ClearActions()
	w.services.ClearActions()
	w.sync()
	if writes := w.writes(); len(writes) > 0 {
		t.Errorf("with nothing to do: %v", writes)
	}
	if err := w.handshake(w.secret(ServerSecret), w.bundle()); err != nil {
		t.Error(err)
	}
}

func TestLeavesAreRepaired(t *testing.T) {
	cases := map[string]func(*world){
		"deleted": func(w *world) { w.remove(ServerSecret) },
		"no key": func(w *world) {
			w.change(ServerSecret, func(s *secretType) { delete(s.Data, corev1.TLSPrivateKeyKey) })
		},
		"damaged": func(w *world) {
			w.change(ServerSecret, func(s *secretType) { s.Data[corev1.TLSCertKey] = []byte("x") })
		},
		"emptied": func(w *world) { w.change(ServerSecret, func(s *secretType) { s.Data = nil }) },
		"other pair": func(w *world) {
			w.change(ServerSecret, func(s *secretType) { s.Data = w.secret(ControllerSecret).Data })
		},
		"foreign": func(w *world) {
			other := newWorld(w.T)
			other.sync()
			w.change(ServerSecret, func(s *secretType) { s.Data = other.secret(ServerSecret).Data })
		},
		"near its end": func(w *world) { w.pass(60*24*time.Hour + time.Second) },
		"expired":      func(w *world) { w.pass(91 * 24 * time.Hour) },
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.sync()
			before, authority := w.cert(ServerSecret), w.state().current.cert
			damage(w)
			w.sync()
			after := w.cert(ServerSecret)
			if after.Equal(before) || !signedBy(after, authority) || !slices.Contains(after.DNSNames, annexName) {
				t.Errorf("the certificate is for %v by %s", after.DNSNames, after.Issuer)
			}
			if got := w.state(); got.step() != "" || !got.current.cert.Equal(authority) {
				t.Errorf("the authority changed, step %q", got.step())
			}
			if err := w.handshake(w.secret(ServerSecret), w.bundle()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAuthorityIsRepaired damages it in all ways. Certificates in use stay, and
// stay trusted.
func TestAuthorityIsRepaired(t *testing.T) {
	noBundle := func(w *world) {
		if err := w.kube.CoreV1().ConfigMaps(namespace).Delete(w.Context(), BundleConfigMap, metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	cases := map[string]func(*world){
		"deleted": func(w *world) { w.remove(AuthoritySecret) },
		"key lost": func(w *world) {
			w.change(AuthoritySecret, func(s *secretType) { delete(s.Data, corev1.TLSPrivateKeyKey) })
		},
		"emptied":                 func(w *world) { w.change(AuthoritySecret, func(s *secretType) { s.Data = nil }) },
		"deleted with its bundle": func(w *world) { w.remove(AuthoritySecret); noBundle(w) },
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.sync()
			before, server := w.state().current.cert, w.cert(ServerSecret)
			damage(w)
			w.sync()
			got := w.state()
			if got.step() != stepAnnouncing || !slices.ContainsFunc(got.trusted(), before.Equal) || !w.cert(ServerSecret).Equal(server) {
				t.Errorf("step %q, the authority before trusted: %t, certificate kept: %t", got.step(), slices.ContainsFunc(got.trusted(), before.Equal), w.cert(ServerSecret).Equal(server))
			}
			w.remove(ServerSecret) // it cannot wait
			w.sync()
			if !signedBy(w.cert(ServerSecret), got.next.cert) {
				t.Errorf("a certificate that is lost too is signed by %s", w.cert(ServerSecret).Issuer)
			}
		})
	}
}

// TestOnlySignersAreTrustedAgain has a stranger in the bundle when the authority is lost.
func TestOnlySignersAreTrustedAgain(t *testing.T) {
	w := newWorld(t)
	w.sync()
	stranger, err := newAuthority("stranger", w.clock.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, _, err := stranger.encode()
	if err != nil {
		t.Fatal(err)
	}
	maps := w.kube.CoreV1().ConfigMaps(namespace)
	bundle, err := maps.Get(t.Context(), BundleConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bundle.Data[authorityKey] += string(certPEM)
	if _, err := maps.Update(t.Context(), bundle, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.remove(AuthoritySecret)
	w.sync()
	if slices.ContainsFunc(w.state().trusted(), stranger.cert.Equal) || len(w.state().trusted()) != 2 {
		t.Errorf("%d authorities are trusted, want the next one and the one before", len(w.state().trusted()))
	}
}

// TestForeignCertificatesAreReplacedWithOverlap takes over from somebody else who issued.
func TestForeignCertificatesAreReplacedWithOverlap(t *testing.T) {
	other := newWorld(t)
	other.sync()
	w := newWorld(t, other.secret(ServerSecret), other.secret(ControllerSecret))
	w.sync()
	if got := w.state().step(); got != stepAnnouncing || !w.cert(ServerSecret).Equal(other.cert(ServerSecret)) {
		t.Fatalf("step %q, want the present certificates in use until everybody was told", got)
	}
	w.rotate()
}

func TestNothingIsLeftAfterALongAbsence(t *testing.T) {
	w := newWorld(t)
	w.sync()
	w.pass(5 * 365 * 24 * time.Hour)
	w.sync()
	if got := w.state(); got.step() != "" || got.current == nil || len(got.trusted()) != 1 {
		t.Errorf("step %q, %d authorities, want a new one that signs at once", got.step(), len(got.trusted()))
	}
	if err := w.handshake(w.secret(ServerSecret), w.bundle()); err != nil {
		t.Error(err)
	}
}

// TestKeysAreNotTold looks for keys in events and errors.
func TestKeysAreNotTold(t *testing.T) {
	w := newWorld(t)
	w.sync()
	w.ask()
	w.rotate()
	close(w.events.Events)
	for event := range w.events.Events {
		if strings.Contains(event, "PRIVATE") {
			t.Errorf("an event holds a key: %s", event)
		}
	}
	if _, err := parseAuthority([]byte("-----BEGIN EC PRIVATE KEY-----"), []byte("-----BEGIN EC PRIVATE KEY-----\nsecret"), w.clock.Now()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestAuthorityIsOne(t *testing.T) {
	w := newWorld(t)
	w.sync()
	cert := w.state().current.cert
	if !cert.IsCA || cert.MaxPathLen != 0 || !cert.MaxPathLenZero || cert.KeyUsage&x509.KeyUsageCertSign == 0 || cert.SerialNumber.Sign() <= 0 {
		t.Errorf("got %+v", cert)
	}
	if w.cert(ServerSecret).IsCA || w.cert(ServerSecret).SerialNumber.Cmp(cert.SerialNumber) == 0 {
		t.Error("the certificate of the server is an authority, or has the serial number of one")
	}
}
