// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// EtcdAuthoritySecret holds the authority of annex's own etcd. It is another one
	// than that of annex, so that nobody else is a client of etcd.
	EtcdAuthoritySecret = "annex-etcd-ca"
	// EtcdServerSecret is what members present to clients.
	EtcdServerSecret = "annex-etcd-server-tls"
	// EtcdPeerSecret is what members present to each other.
	EtcdPeerSecret = "annex-etcd-peer-tls"
	// EtcdClientSecret is what annex-apiserver presents.
	EtcdClientSecret = "annex-etcd-client-tls"

	// etcdClient is who annex-apiserver is for etcd.
	etcdClient = "annex-apiserver"
	// etcdAuthorityValidity is long: etcd and its clients read the file of the authority
	// once, when they start (go.etcd.io/etcd/client/pkg/v3/transport), so that it cannot
	// be rotated behind their backs. Certificates they read at every handshake.
	etcdAuthorityValidity = 10 * 365 * 24 * time.Hour
	// etcdAuthorityNotice is how long before its end it is told that it has to be replaced by hand.
	etcdAuthorityNotice = 365 * 24 * time.Hour
)

// EtcdIssuer keeps the authority of annex's own etcd and its three certificates.
// Only the leader may run it.
type EtcdIssuer struct {
	Store

	// Validity is that of the certificates.
	Validity time.Duration
	// Members are the names or addresses of all members.
	Members []string
	// ClusterDomain is the DNS domain of the cluster.
	ClusterDomain string
}

// Leaves are the certificates. A server is its own client too: it passes requests of
// its HTTP gateway on to itself.
func (e *EtcdIssuer) Leaves() []Leaf {
	names := ServiceNames(e.ClusterDomain, e.Members...)
	for _, member := range e.Members {
		// The Service of a member has the rest of its name.
		if _, service, ok := strings.Cut(member, "."); ok && strings.HasSuffix(service, serviceSuffix) {
			names = append(names, ServiceNames(e.ClusterDomain, service)...)
			break
		}
	}
	names = append(names, localNames()...)
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return []Leaf{
		{Secret: EtcdServerSecret, CommonName: "annex-etcd", Names: names, Usages: both},
		{Secret: EtcdPeerSecret, CommonName: "annex-etcd-peer", Names: names, Usages: both},
		{Secret: EtcdClientSecret, CommonName: etcdClient, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	}
}

// Sync makes what is missing and renews what is near its end. It returns when to look again.
func (e *EtcdIssuer) Sync(ctx context.Context) (time.Time, error) {
	signer, bundle, err := e.authority(ctx)
	if err != nil {
		return time.Time{}, err
	}
	e.expires(EtcdAuthoritySecret, signer.cert)
	if notice := signer.cert.NotAfter.Add(-etcdAuthorityNotice); !e.Clock.Now().Before(notice) {
		e.event(EtcdAuthoritySecret, corev1.EventTypeWarning, "AuthorityEnds", "Rotate", "The authority of etcd ends at "+
			signer.cert.NotAfter.Format(time.RFC3339)+": replace it by hand, etcd and annex-apiserver have to be restarted for that")
	}
	how := signing{signer: signer, accepted: []*x509.Certificate{signer.cert}, bundle: bundle, validity: e.Validity}
	var renew time.Time
	var errs []error
	for _, leaf := range e.Leaves() {
		cert, err := e.signLeaf(ctx, &leaf, how)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if at := renewAt(cert); renew.IsZero() || at.Before(renew) {
			renew = at
		}
	}
	return renew, joined(errs)
}

// authority reads the authority, or makes it when etcd was never started. One that
// is lost is not replaced: the members that run would not trust its certificates.
func (e *EtcdIssuer) authority(ctx context.Context) (*authority, []byte, error) {
	secret, err := e.secret(ctx, EtcdAuthoritySecret)
	if err != nil {
		return nil, nil, err
	}
	if secret != nil {
		signer, err := parseAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], e.Clock.Now())
		if err != nil {
			return nil, nil, fmt.Errorf("reading the Secret %s, the authority of etcd: %w: restore it from a backup, or %s", EtcdAuthoritySecret, err, etcdAnew)
		}
		return signer, secret.Data[corev1.TLSCertKey], nil
	}
	for _, leaf := range e.Leaves() {
		stored, err := e.secret(ctx, leaf.Secret)
		if err != nil {
			return nil, nil, err
		}
		if stored != nil {
			return nil, nil, fmt.Errorf("the Secret %s, the authority of etcd, is gone and %s is there: restore it from a backup, or %s", EtcdAuthoritySecret, leaf.Secret, etcdAnew)
		}
	}
	return e.newAuthority(ctx)
}

// etcdAnew is the way out when there is no backup.
const etcdAnew = "delete all Secrets annex-etcd-* and restart etcd and annex-apiserver"

func (e *EtcdIssuer) newAuthority(ctx context.Context) (*authority, []byte, error) {
	signer, err := newAuthority(EtcdAuthoritySecret, e.Clock.Now(), etcdAuthorityValidity)
	if err != nil {
		return nil, nil, err
	}
	certPEM, keyPEM, err := signer.encode()
	if err != nil {
		return nil, nil, err
	}
	secret := e.newSecret(EtcdAuthoritySecret, corev1.SecretTypeOpaque)
	secret.Data = map[string][]byte{corev1.TLSCertKey: certPEM, corev1.TLSPrivateKeyKey: keyPEM}
	if _, err := e.writeSecret(ctx, secret, false); err != nil {
		return nil, nil, err
	}
	return signer, certPEM, nil
}
