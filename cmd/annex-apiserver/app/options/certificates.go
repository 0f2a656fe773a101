// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/tls"
	"fmt"
	"time"
)

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
