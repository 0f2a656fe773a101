// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// authorityKey is where a Secret with a certificate holds who is to be trusted,
// as cert-manager does it.
const authorityKey = "ca.crt"

// Leaf is a certificate that is kept in a Secret.
type Leaf struct {
	// Secret is its name.
	Secret string
	// CommonName is who presents it.
	CommonName string
	// Names are the DNS names and addresses at which it is presented.
	Names []string
	// Usages say whether servers or clients present it.
	Usages []x509.ExtKeyUsage
}

// names splits DNS names from addresses.
func (l *Leaf) names() (dns []string, addresses []net.IP) {
	for _, name := range l.Names {
		if address := net.ParseIP(name); address != nil {
			addresses = append(addresses, address)
		} else {
			dns = append(dns, name)
		}
	}
	return dns, addresses
}

// flaw returns why what a Secret holds has to be replaced, the end of a sentence
// about it. It is empty when it does not. One of signers has to have signed it.
func (l *Leaf) flaw(secret *corev1.Secret, signers []*x509.Certificate, now time.Time) string {
	if secret == nil {
		return "is missing"
	}
	cert := certificateOf(secret)
	switch {
	case cert == nil:
		return "cannot be read"
	case !l.describes(cert):
		return "is for other names"
	case now.Before(cert.NotBefore):
		return "is not valid yet"
	case !now.Before(renewAt(cert)):
		return "is near its end"
	case !slices.ContainsFunc(signers, func(signer *x509.Certificate) bool { return signedBy(cert, signer) }):
		return "is signed by another authority"
	default:
		return ""
	}
}

// describes says whether a certificate is for the names and usages of the leaf.
func (l *Leaf) describes(cert *x509.Certificate) bool {
	dns, addresses := l.names()
	return cert.Subject.CommonName == l.CommonName &&
		slices.Equal(cert.DNSNames, dns) && slices.EqualFunc(cert.IPAddresses, addresses, net.IP.Equal) &&
		slices.Equal(cert.ExtKeyUsage, l.Usages)
}

// certificateOf returns the certificate of a Secret, nil when it does not have one with its key.
func certificateOf(secret *corev1.Secret) *x509.Certificate {
	if secret == nil {
		return nil
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil
	}
	return pair.Leaf
}
