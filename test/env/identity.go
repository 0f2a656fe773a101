// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"

	"k8s.io/client-go/rest"
)

// ExpiredClient returns a certificate that authenticated a user with the given groups until an hour ago.
func (c *CA) ExpiredClient(user string, groups ...string) (KeyPair, error) {
	key, err := newKey()
	if err != nil {
		return KeyPair{}, err
	}
	end := time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: user, Organization: groups},
		NotBefore:    end.Add(-certLifetime),
		NotAfter:     end,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, c.cert, key.Public(), c.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("signing an expired certificate: %w", err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return KeyPair{}, fmt.Errorf("reading back a certificate: %w", err)
	}
	return encode(signed, key)
}

// ClientCA is the authority of the host's client certificates.
func (h *Host) ClientCA() *CA { return h.pki.ca }

// FrontProxyCA is the authority of the host's first front-proxy certificate.
func (h *Host) FrontProxyCA() *CA { return h.pki.frontProxy }

// FrontProxyPair is the front-proxy certificate that the host shows.
func (h *Host) FrontProxyPair() KeyPair { return h.pki.frontProxyPair }

// ConfigWith returns a client configuration with any client certificate, or with none, at
// the first kube-apiserver.
func (h *Host) ConfigWith(client KeyPair) *rest.Config {
	return clientConfig(h.APIServers[0].URL, h.pki.ca.PEM(), client)
}

// WriteFrontProxyCA replaces the authorities of front proxies, as PEM. kube-apiserver
// reads them again by itself and adds them to what aggregated servers read.
func (h *Host) WriteFrontProxyCA(authorities []byte) error {
	return writeFile(h.pki.frontProxyCAFile, authorities)
}

// WriteFrontProxyPair replaces the front-proxy certificate, which kube-apiserver reads again by itself.
func (h *Host) WriteFrontProxyPair(pair KeyPair) error {
	if err := writeFile(h.pki.frontProxyKey, pair.Key); err != nil {
		return err
	}
	h.pki.frontProxyPair = pair
	return writeFile(h.pki.frontProxyCert, pair.Cert)
}

// ConfigWith returns a client configuration with any client certificate, or with none, at
// a replica and past kube-apiserver.
func (a *Annex) ConfigWith(replica int, client KeyPair) *rest.Config {
	return clientConfig(a.Replicas[replica].URL, a.host.pki.ca.PEM(), client)
}
