// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// leafLifetime is how long a certificate that the authority issues is valid.
	leafLifetime = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is issued anew at the next start: a server that is started
	// twice a year never shows an expired one.
	renewBefore = leafLifetime / 2
	// clockSkew is how far the clocks of server and client may differ.
	clockSkew = 5 * time.Minute
)

// pair is a certificate with its key, in memory and on disk.
type pair struct {
	certFile, keyFile string
	certPEM, keyPEM   []byte
	cert              *x509.Certificate
	key               crypto.Signer
}

// authority issues certificates.
type authority struct {
	*pair
}

// loadOrCreateAuthority returns the certificate authority in dir. An authority
// that cannot be used is never replaced: every kubeconfig made from it would
// stop working.
func loadOrCreateAuthority(dir string) (*authority, error) {
	p, err := load(dir, "ca")
	if errors.Is(err, fs.ErrNotExist) {
		return createAuthority(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: restore the files from a backup, or remove %s to have new credentials made", err, dir)
	}
	if !p.cert.IsCA {
		return nil, fmt.Errorf("the certificate %s is not an authority: restore it from a backup, or remove %s to have new credentials made", p.certFile, dir)
	}
	if time.Now().After(p.cert.NotAfter) {
		return nil, fmt.Errorf("the certificate authority %s expired on %s: remove %s to have new credentials made", p.certFile, p.cert.NotAfter.Format(time.RFC3339), dir)
	}
	return &authority{p}, nil
}

func createAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the authority's key: %w", err)
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "annex-ca"}, key)
	if err != nil {
		return nil, fmt.Errorf("creating the certificate authority: %w", err)
	}
	p, err := store(dir, "ca", cert, key)
	if err != nil {
		return nil, err
	}
	return &authority{p}, nil
}

// servingTemplate names the server by every name that a client on this machine may use.
func servingTemplate(ip net.IP, alternateNames []string) *x509.Certificate {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: ServerName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", ServerName},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback},
	}
	for _, name := range alternateNames {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if hostname, err := os.Hostname(); err == nil {
		template.DNSNames = append(template.DNSNames, hostname)
	}
	if !ip.IsUnspecified() && !ip.IsLoopback() {
		template.IPAddresses = append(template.IPAddresses, ip)
	}
	return template
}

func adminTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: adminUser, Organization: []string{user.SystemPrivilegedGroup}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// loadOrIssue returns the named certificate in dir. It is issued when it is
// missing, nearly expired, signed by another authority or lacks a name of the template.
func (a *authority) loadOrIssue(dir, name string, template *x509.Certificate) (*pair, error) {
	p, err := load(dir, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: remove the file to have a new one issued", err)
	}
	if err == nil && a.serves(p.cert, template) {
		return p, nil
	}
	return a.issue(dir, name, template)
}

func (a *authority) serves(cert, template *x509.Certificate) bool {
	ips := func(c *x509.Certificate) []string {
		var all []string
		for _, ip := range c.IPAddresses {
			all = append(all, ip.String())
		}
		return all
	}
	return cert.CheckSignatureFrom(a.cert) == nil &&
		time.Now().Add(renewBefore).Before(cert.NotAfter) &&
		contains(cert.DNSNames, template.DNSNames) &&
		contains(ips(cert), ips(template))
}

func (a *authority) issue(dir, name string, template *x509.Certificate) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key of the %s certificate: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64-1))
	if err != nil {
		return nil, fmt.Errorf("generating the serial number of the %s certificate: %w", name, err)
	}
	unsigned := *template
	unsigned.SerialNumber = serial.Add(serial, big.NewInt(1))
	unsigned.KeyUsage = x509.KeyUsageDigitalSignature
	unsigned.NotBefore = time.Now().Add(-clockSkew)
	unsigned.NotAfter = time.Now().Add(leafLifetime)
	der, err := x509.CreateCertificate(rand.Reader, &unsigned, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("issuing the %s certificate: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issuing the %s certificate: %w", name, err)
	}
	return store(dir, name, cert, key)
}

func files(dir, name string) (certFile, keyFile string) {
	return filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
}

// load reads a certificate and its key. It returns fs.ErrNotExist only when
// the certificate is missing: a certificate without its key is an error.
func load(dir, name string) (*pair, error) {
	certFile, keyFile := files(dir, name)
	certPEM, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	keyPEM, keyErr := os.ReadFile(keyFile)
	if errors.Is(keyErr, fs.ErrNotExist) {
		keyErr = fmt.Errorf("the key of %s is missing: %s", certFile, keyFile)
	}
	if err := errors.Join(err, keyErr); err != nil {
		return nil, fmt.Errorf("reading the %s certificate: %w", name, err)
	}
	keyPair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("reading the %s certificate %s: %w", name, certFile, err)
	}
	signer, ok := keyPair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("reading the %s certificate: the key %s cannot sign", name, keyFile)
	}
	return &pair{certFile: certFile, keyFile: keyFile, certPEM: certPEM, keyPEM: keyPEM, cert: keyPair.Leaf, key: signer}, nil
}

// store writes the key first: a crash in between leaves no certificate, and
// the next start issues both again.
func store(dir, name string, cert *x509.Certificate, key *ecdsa.PrivateKey) (*pair, error) {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of the %s certificate: %w", name, err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: cert.Raw})
	p := &pair{certPEM: certPEM, keyPEM: slices.Clone(keyPEM), cert: cert, key: key}
	p.certFile, p.keyFile = files(dir, name)
	// A renewed key must never stand beside the certificate of the old one.
	if err := os.Remove(p.certFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replacing the %s certificate: %w", name, err)
	}
	if err := writeFile(p.keyFile, keyPEM); err != nil {
		return nil, err
	}
	return p, writeFile(p.certFile, certPEM)
}
