// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"

	certutil "k8s.io/client-go/util/cert"

	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// samples is how often hosts are asked over new connections that cannot be told
// apart behind a load balancer.
const samples = 10

// Witness asks others how far they are.
type Witness struct {
	// CABundles are what kube-apiservers have to know.
	CABundles *CABundles
	// Hosts are all kube-apiservers. Sampled says that they are behind a load balancer.
	Hosts   cluster.Endpoints
	Sampled bool
	// Servers are all processes that present a certificate.
	Servers []cluster.Endpoints
}

// Told returns nil when every kube-apiserver knows the bundle.
func (w *Witness) Told(ctx context.Context, bundle []byte) error {
	hosts, err := w.Hosts(ctx)
	if err != nil {
		return err
	}
	times := 1
	if w.Sampled {
		times = samples
	}
	for range times {
		err := cluster.OnEvery(ctx, hosts, func(ctx context.Context, server *cluster.Server) error {
			if w.Sampled {
				server.Reconnect()
			}
			return w.CABundles.Check(ctx, server, bundle, bundle)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Presented returns nil when every server presents a certificate that signer has signed.
func (w *Witness) Presented(ctx context.Context, bundle []byte, signer *x509.Certificate) error {
	pool, err := certutil.NewPoolFromBytes(bundle)
	if err != nil {
		return fmt.Errorf("reading the authorities: %w", err)
	}
	for _, endpoints := range w.Servers {
		servers, err := endpoints(ctx)
		if err != nil {
			return err
		}
		err = cluster.OnEvery(ctx, servers, func(ctx context.Context, server *cluster.Server) error {
			cert, err := presented(ctx, server, pool)
			if err == nil && !signedBy(cert, signer) {
				err = errors.New("it presents a certificate of another authority still")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// presented is what a server presents over a new connection.
func presented(ctx context.Context, server *cluster.Server, pool *x509.CertPool) (*x509.Certificate, error) {
	address, err := url.Parse(server.Config.Host)
	if err != nil {
		return nil, fmt.Errorf("parsing its address: %w", err)
	}
	name, err := cluster.ServerName(server.Config)
	if err != nil {
		return nil, err
	}
	host := address.Host
	if address.Port() == "" {
		host = net.JoinHostPort(address.Hostname(), "443")
	}
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: name}}
	connection, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	defer connection.Close() //nolint:errcheck // nothing was sent
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}
