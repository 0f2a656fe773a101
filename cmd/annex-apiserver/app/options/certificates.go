// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	certutil "k8s.io/client-go/util/cert"
)

// checkCertificate refuses a file that holds no certificate or only expired
// ones: nobody could connect with it. An empty name is no certificate and fine.
func checkCertificate(flag, file string) error {
	if file == "" {
		return nil
	}
	certs, err := certutil.CertsFromFile(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w: correct the flag or the file", flag, err)
	}
	now := time.Now()
	if !slices.ContainsFunc(certs, func(cert *x509.Certificate) bool { return now.Before(cert.NotAfter) }) {
		return fmt.Errorf("the certificate %s of %s expired on %s: renew it", file, flag, certs[0].NotAfter.Format(time.RFC3339))
	}
	return nil
}

// validateServingPair refuses one half of a pair.
func validateServingPair(pair genericoptions.CertKey) []error {
	const certFlag, keyFlag = "--tls-cert-file", "--tls-private-key-file"
	switch {
	case pair.CertFile != "" && pair.KeyFile == "":
		return []error{fmt.Errorf("%s needs %s: give both, or none to have a certificate made", certFlag, keyFlag)}
	case pair.CertFile == "" && pair.KeyFile != "":
		return []error{fmt.Errorf("%s needs %s: give both, or none to have a certificate made", keyFlag, certFlag)}
	}
	return nil
}

// checkServingCertificate refuses a certificate that no client would accept,
// rather than letting every client find out. Empty names mean a certificate
// that was generated in memory.
func checkServingCertificate(certFile, keyFile string) error {
	if certFile == "" && keyFile == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("reading the serving certificate %s and its key %s: %w: correct --tls-cert-file and --tls-private-key-file", certFile, keyFile, err)
	}
	now := time.Now()
	if now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("the serving certificate %s expired on %s: renew it", certFile, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	if now.Before(pair.Leaf.NotBefore) {
		return fmt.Errorf("the serving certificate %s is valid only from %s: check the clock of this machine or renew it", certFile, pair.Leaf.NotBefore.Format(time.RFC3339))
	}
	return nil
}
