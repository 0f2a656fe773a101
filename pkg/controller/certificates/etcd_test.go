// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"
)

func (w *world) etcd() *EtcdIssuer {
	return &EtcdIssuer{Store: w.store(), Validity: 90 * 24 * time.Hour, ClusterDomain: domain, Members: []string{
		"annex-etcd-0.annex-etcd.annex-system.svc", "annex-etcd-1.annex-etcd.annex-system.svc", "127.0.0.7",
	}}
}

func (w *world) syncEtcd() {
	w.Helper()
	if _, err := w.etcd().Sync(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// TestEtcdCertificates verifies them as etcd does.
func TestEtcdCertificates(t *testing.T) {
	w := newWorld(t)
	w.syncEtcd()
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	cases := map[string]struct {
		names  []string
		usages []x509.ExtKeyUsage
	}{
		EtcdServerSecret: {[]string{"annex-etcd-1.annex-etcd.annex-system.svc", "annex-etcd-0.annex-etcd.annex-system.svc." + domain, "annex-etcd.annex-system.svc", "127.0.0.7", "localhost", "127.0.0.1"}, both},
		EtcdPeerSecret:   {[]string{"annex-etcd-1.annex-etcd.annex-system.svc", "127.0.0.7"}, both},
		EtcdClientSecret: {[]string{""}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	}
	for secret, tc := range cases {
		t.Run(secret, func(t *testing.T) {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(w.secret(secret).Data[authorityKey])
			for _, name := range tc.names {
				for _, usage := range tc.usages {
					if _, err := w.cert(secret).Verify(x509.VerifyOptions{DNSName: name, Roots: pool, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: w.clock.Now()}); err != nil {
						t.Errorf("as %q: %v", name, err)
					}
				}
			}
		})
	}
	client := w.cert(EtcdClientSecret)
	if client.Subject.CommonName != "annex-apiserver" || len(client.DNSNames)+len(client.IPAddresses) > 0 || !slices.Equal(client.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("the client is %s with names %v", client.Subject, client.DNSNames)
	}
	// Nobody else's certificate is taken for that of a client.
	w.sync()
	if signedBy(w.cert(ServerSecret), parseAuthorities(w.secret(EtcdAuthoritySecret).Data["tls.crt"])[0]) {
		t.Error("the authority of etcd has signed the certificate of annex")
	}
}

func TestEtcdCertificatesAreRenewedByTheSameAuthority(t *testing.T) {
	w := newWorld(t)
	w.syncEtcd()
	before, authority := w.cert(EtcdServerSecret), w.secret(EtcdAuthoritySecret)
	for range 8 {
		w.pass(365 * 24 * time.Hour)
		w.syncEtcd()
	}
	if after := w.cert(EtcdServerSecret); after.Equal(before) || !w.clock.Now().Before(after.NotAfter) {
		t.Errorf("the certificate ends at %s", after.NotAfter)
	}
	if string(w.secret(EtcdAuthoritySecret).Data["tls.crt"]) != string(authority.Data["tls.crt"]) {
		t.Error("the authority changed, which the members do not see")
	}
	if len(w.events.Events) > 0 {
		t.Errorf("there is an event: %s", <-w.events.Events)
	}
	w.pass(400 * 24 * time.Hour)
	w.syncEtcd()
	if event := <-w.events.Events; !strings.Contains(event, "replace it by hand") {
		t.Errorf("the event is %q", event)
	}
}

// TestEtcdAuthorityIsNotReplaced has members that trust the lost one only.
func TestEtcdAuthorityIsNotReplaced(t *testing.T) {
	cases := map[string]func(*world){
		"deleted": func(w *world) { w.remove(EtcdAuthoritySecret) },
		"damaged": func(w *world) { w.change(EtcdAuthoritySecret, func(s *secretType) { s.Data["tls.key"] = []byte("x") }) },
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.syncEtcd()
			before := w.cert(EtcdServerSecret)
			damage(w)
			_, err := w.etcd().Sync(t.Context())
			if err == nil || !strings.Contains(err.Error(), "restore it from a backup") || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with the way out", err)
			}
			if !w.cert(EtcdServerSecret).Equal(before) {
				t.Error("the certificate changed")
			}
			for _, secret := range []string{EtcdServerSecret, EtcdPeerSecret, EtcdClientSecret} {
				w.remove(secret)
			}
			if name == "deleted" {
				w.syncEtcd()
			}
		})
	}
}
