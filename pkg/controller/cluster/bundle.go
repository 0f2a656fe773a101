// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"sync"

	certutil "k8s.io/client-go/util/cert"
)

// Bundle is the authorities by which a server is verified now. They change while
// the process runs: connections and whoever writes a caBundle ask again each time.
type Bundle struct {
	// source is what messages call it, such as a file or a ConfigMap.
	source string

	mu        sync.Mutex
	content   []byte
	pool      *x509.CertPool
	known     chan struct{}
	listeners []func()
}

// NewBundle returns a bundle that nothing is known of yet. Source is where it comes
// from, for messages.
func NewBundle(source string) *Bundle {
	return &Bundle{source: source, known: make(chan struct{})}
}

// Set replaces the authorities, PEM. Content without a certificate is refused, and
// what was known before stays.
func (b *Bundle) Set(content []byte) error {
	pool, err := certutil.NewPoolFromBytes(content)
	if err != nil {
		return fmt.Errorf("reading the authorities of %s: %w", b.source, err)
	}
	b.mu.Lock()
	if bytes.Equal(b.content, content) {
		b.mu.Unlock()
		return nil
	}
	if b.content == nil {
		close(b.known)
	}
	b.content, b.pool = bytes.Clone(content), pool
	listeners := b.listeners
	b.mu.Unlock()
	for _, listener := range listeners {
		listener()
	}
	return nil
}

// CABundle returns the authorities, PEM. It is nil before the first Set.
func (b *Bundle) CABundle() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.content)
}

// Known is closed when there is something to verify by.
func (b *Bundle) Known() <-chan struct{} { return b.known }

// OnChange makes Set call listener when the content changes. It must not block.
func (b *Bundle) OnChange(listener func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listeners = append(b.listeners, listener)
}

// Pool returns the authorities as a TLS client takes them. Before the first Set
// it is an error: without authorities a client would trust those of the machine.
func (b *Bundle) Pool() (*x509.CertPool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pool == nil {
		return nil, fmt.Errorf("%s names no authority yet, so nothing can be verified: it is tried again", b.source)
	}
	return b.pool, nil
}
