// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// clockSkew is how far the clock of a client may be behind.
const clockSkew = time.Hour

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority makes an authority that signs by itself. Every one has a subject
// of its own, so that nobody takes one for another.
func newAuthority(name string, now time.Time, validity time.Duration) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name + "-" + serial.Text(16)[:8]},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	cert, err := create(template, template, key, key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key}, nil
}

// parseAuthority reads an authority that can sign now.
func parseAuthority(certPEM, keyPEM []byte, now time.Time) (*authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, errors.New("certificate and key cannot be read") // the cause could quote the key
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok:
		return nil, errors.New("the key cannot sign")
	case !pair.Leaf.IsCA:
		return nil, errors.New("the certificate is not that of an authority")
	case now.After(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("the certificate expired at %s", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	return &authority{cert: pair.Leaf, key: key}, nil
}

// encode returns certificate and key as PEM.
func (a *authority) encode() (certPEM, keyPEM []byte, err error) { return encodePair(a.cert, a.key) }

// sign makes a key and a certificate for it. It is not valid for longer than the authority.
func (a *authority) sign(leaf *Leaf, now time.Time, validity time.Duration) (certPEM, keyPEM []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: leaf.CommonName},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              earlier(now.Add(validity), a.cert.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           leaf.Usages,
		BasicConstraintsValid: true,
	}
	template.DNSNames, template.IPAddresses = leaf.names()
	cert, err := create(template, a.cert, key, a.key)
	if err != nil {
		return nil, nil, err
	}
	return encodePair(cert, key)
}

// signedBy says whether an authority has signed a certificate.
func signedBy(cert, authority *x509.Certificate) bool {
	return bytes.Equal(cert.RawIssuer, authority.RawSubject) && cert.CheckSignatureFrom(authority) == nil
}

// renewAt is when two thirds of the life of a certificate are over.
func renewAt(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore.Add(clockSkew)) / 3)
}

func create(template, parent *x509.Certificate, key, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate for %s: %w", template.Subject, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading back a certificate for %s: %w", template.Subject, err)
	}
	return cert, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a private key: %w", err)
	}
	return key, nil
}

// newSerial returns a random number with its highest bit set, so that its text has one length.
func newSerial() (*big.Int, error) {
	const bits = 127
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits-1))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	return serial.SetBit(serial, bits-1, 1), nil
}

func encodePair(cert *x509.Certificate, key crypto.Signer) (certPEM, keyPEM []byte, err error) {
	if certPEM, err = certutil.EncodeCertificates(cert); err != nil {
		return nil, nil, fmt.Errorf("encoding a certificate: %w", err)
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, errors.New("encoding a private key failed") // the cause could quote the key
	}
	return certPEM, keyPEM, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
