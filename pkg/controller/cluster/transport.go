// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

var _ http.RoundTripper = &followingTransport{}

// followingTransport verifies servers by a bundle that may change. client-go can
// follow a file, at most five minutes late (client-go/transport/ca_rotation.go);
// this follows at the next connection, and anything that a bundle is read from.
// Connections that are open stay open: the server behind them was verified.
type followingTransport struct {
	bundle *Bundle
	base   *tls.Config

	mu      sync.Mutex
	pool    *x509.CertPool
	current *http.Transport
}

// following returns a configuration like config whose connections are verified
// by the bundle instead of config's own authority.
func following(config *rest.Config, bundle *Bundle) (*rest.Config, error) {
	verified := rest.CopyConfig(config)
	verified.CAFile, verified.CAData = "", nil
	base, err := rest.TLSConfigFor(verified)
	if err != nil {
		return nil, fmt.Errorf("reading client certificates: %w", err)
	}
	if base == nil {
		base = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	// A configuration has either a transport or what one is made from.
	verified.TLSClientConfig = rest.TLSClientConfig{}
	verified.Transport = &followingTransport{bundle: bundle, base: base}
	return verified, nil
}

// RoundTrip implements http.RoundTripper.
func (f *followingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	transport, err := f.transport()
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // nothing was read from it
		}
		return nil, err
	}
	return transport.RoundTrip(request)
}

// CloseIdleConnections is what utilnet.CloseIdleConnectionsFor looks for.
func (f *followingTransport) CloseIdleConnections() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		f.current.CloseIdleConnections()
	}
}

func (f *followingTransport) transport() (*http.Transport, error) {
	pool, err := f.bundle.Pool()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pool == pool {
		return f.current, nil
	}
	if f.current != nil {
		f.current.CloseIdleConnections()
	}
	verify := f.base.Clone()
	verify.RootCAs = pool
	f.pool, f.current = pool, utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: verify})
	return f.current, nil
}
