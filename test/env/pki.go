// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// frontProxyName is the common name by which kube-apiserver proves to an
	// aggregated server that it speaks for a user.
	frontProxyName = "front-proxy-client"
	certLifetime   = 24 * time.Hour
	clockSkew      = time.Hour
)

// KeyPair is a certificate with its private key, both as PEM.
type KeyPair struct {
	Cert []byte
	Key  []byte
}

// CA signs serving and client certificates that are valid for a day.
type CA struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewCA makes a certificate authority with the given common name.
func NewCA(name string) (*CA, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	root, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	return &CA{cert: root, key: key}, nil
}

// PEM returns the certificate of the authority.
func (c *CA) PEM() []byte {
	// Encoding a parsed certificate into memory cannot fail.
	data, _ := certutil.EncodeCertificates(c.cert)
	return data
}

// Serving returns a certificate for a server that is reached by the given DNS
// names and addresses, by localhost and by 127.0.0.1.
func (c *CA) Serving(names ...string) (KeyPair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "localhost"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	return c.sign(template)
}

// Client returns a certificate that authenticates a user with the given groups.
func (c *CA) Client(user string, groups ...string) (KeyPair, error) {
	return c.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (c *CA) sign(template *x509.Certificate) (KeyPair, error) {
	key, err := newKey()
	if err != nil {
		return KeyPair{}, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return KeyPair{}, fmt.Errorf("choosing a serial number: %w", err)
	}
	template.NotBefore = time.Now().Add(-clockSkew)
	template.NotAfter = time.Now().Add(certLifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), c.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("signing a certificate for %s: %w", template.Subject, err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return KeyPair{}, fmt.Errorf("reading back a certificate: %w", err)
	}
	return encode(signed, key)
}

func encode(signed *x509.Certificate, key crypto.Signer) (KeyPair, error) {
	certPEM, err := certutil.EncodeCertificates(signed)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encoding a certificate: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("encoding a private key: %w", err)
	}
	return KeyPair{Cert: certPEM, Key: keyPEM}, nil
}

// newKey makes an elliptic key: an RSA key would cost a second each on a busy machine.
func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a private key: %w", err)
	}
	return key, nil
}

// write puts the pair into dir as <name>.crt and <name>.key.
func (p KeyPair) write(dir, name string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := writeFile(certFile, p.Cert); err != nil {
		return "", "", err
	}
	return certFile, keyFile, writeFile(keyFile, p.Key)
}

func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("writing a file of the environment: %w", err)
	}
	return nil
}

// pki holds everything that a cluster's servers prove themselves with. All of
// it is in files below dir.
type pki struct {
	dir        string
	ca         *CA
	frontProxy *CA

	caFile, servingCert, servingKey                 string
	frontProxyCAFile, frontProxyCert, frontProxyKey string
	serviceAccountKey                               string
	frontProxyPair                                  KeyPair
}

// newPKI makes everything; kube-apiserver is also reached by the given addresses.
func newPKI(dir string, addresses ...string) (*pki, error) {
	p := &pki{dir: dir, caFile: filepath.Join(dir, "ca.crt"), frontProxyCAFile: filepath.Join(dir, "front-proxy-ca.crt")}
	var err error
	if p.ca, err = NewCA("annex-test-ca"); err != nil {
		return nil, err
	}
	if p.frontProxy, err = NewCA("annex-test-front-proxy-ca"); err != nil {
		return nil, err
	}
	if err := writeFile(p.caFile, p.ca.PEM()); err != nil {
		return nil, err
	}
	if err := writeFile(p.frontProxyCAFile, p.frontProxy.PEM()); err != nil {
		return nil, err
	}
	return p, p.writePairs(addresses)
}

func (p *pki) writePairs(addresses []string) error {
	serving, err := p.ca.Serving(append([]string{"kubernetes.default.svc", "kubernetes.default"}, addresses...)...)
	if err != nil {
		return err
	}
	if p.servingCert, p.servingKey, err = serving.write(p.dir, "serving"); err != nil {
		return err
	}
	if p.frontProxyPair, err = p.frontProxy.Client(frontProxyName); err != nil {
		return err
	}
	if p.frontProxyCert, p.frontProxyKey, err = p.frontProxyPair.write(p.dir, frontProxyName); err != nil {
		return err
	}
	serviceAccounts, err := p.ca.Client("service-accounts")
	if err != nil {
		return err
	}
	_, p.serviceAccountKey, err = serviceAccounts.write(p.dir, "service-accounts")
	return err
}
