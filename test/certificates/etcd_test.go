// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/pkg/controller/certificates"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/env/ports"
)

// member is one of two etcd servers.
type member struct {
	name, client, peer string
	process            *env.Process
}

// mountFiles writes a Secret as files <prefix>.crt, .key and -ca.crt.
func mountFiles(t *testing.T, dir, prefix, name string) {
	t.Helper()
	s := secret(t, name)
	for file, key := range map[string]string{".key": corev1.TLSPrivateKeyKey, ".crt": corev1.TLSCertKey, "-ca.crt": "ca.crt"} {
		if err := replace(filepath.Join(dir, prefix+file), s.Data[key]); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitSecret waits until a Secret is made, for the first time or again.
func awaitSecret(t *testing.T, name string) {
	t.Helper()
	err := scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		_, err := suite.kube.CoreV1().Secrets(env.AnnexNamespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// startMembers starts two members that demand certificates of clients and of each other.
func startMembers(t *testing.T, dir string) []*member {
	t.Helper()
	program, err := suite.cluster.Env.Program("etcd")
	if err != nil {
		t.Fatal(err)
	}
	url := func() string { return "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Free(t))) }
	members := []*member{{name: "a", client: url(), peer: url()}, {name: "b", client: url(), peer: url()}}
	for _, m := range members {
		file := func(prefix, suffix string) string { return filepath.Join(dir, prefix+suffix) }
		m.process, err = suite.cluster.Env.StartProcess(env.Command{
			Name: "etcd-" + m.name, Path: program, Ready: func(ctx context.Context) error { return put(ctx, t, m.client, certificates.EtcdClientSecret) },
			Args: []string{
				"--name=" + m.name, "--data-dir=" + filepath.Join(t.TempDir(), m.name),
				"--initial-cluster=a=" + members[0].peer + ",b=" + members[1].peer,
				"--listen-client-urls=" + m.client, "--advertise-client-urls=" + m.client, "--listen-peer-urls=" + m.peer, "--initial-advertise-peer-urls=" + m.peer,
				"--client-cert-auth", "--trusted-ca-file=" + file("server", "-ca.crt"), "--cert-file=" + file("server", ".crt"), "--key-file=" + file("server", ".key"),
				"--peer-client-cert-auth", "--peer-trusted-ca-file=" + file("peer", "-ca.crt"), "--peer-cert-file=" + file("peer", ".crt"), "--peer-key-file=" + file("peer", ".key"),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.process.Kill(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, m := range members {
		if err := m.process.WaitReady(scenario.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
	return members
}

// clientTLS presents the certificate of a Secret to etcd.
func clientTLS(t *testing.T, name string) (*tls.Config, error) {
	t.Helper()
	s := secret(t, name)
	pair, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s: %w", name, err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(secret(t, certificates.EtcdClientSecret).Data["ca.crt"])
	// Without regard to what the server asks for: a client that has another certificate tries it.
	present := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, GetClientCertificate: present}, nil
}

// put writes to a member over a new connection.
func put(ctx context.Context, t *testing.T, url, name string) error {
	config, err := clientTLS(t, name)
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: config, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // what was written was answered
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = client.Put(ctx, "/test", name)
	return err
}

// presented is what a member presents now.
func presented(t *testing.T, url string) []byte {
	t.Helper()
	config, err := clientTLS(t, certificates.EtcdClientSecret)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := (&tls.Dialer{Config: config}).DialContext(scenario.Context(t), "tcp", strings.TrimPrefix(url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close() //nolint:errcheck // nothing was sent
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw
}

// TestEtcdTakesTheCertificates runs a real etcd with them and renews one under it.
func TestEtcdTakesTheCertificates(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{certificates.EtcdServerSecret, certificates.EtcdPeerSecret, certificates.EtcdClientSecret, certificates.ServerSecret} {
		awaitSecret(t, name)
	}
	mountFiles(t, dir, "server", certificates.EtcdServerSecret)
	mountFiles(t, dir, "peer", certificates.EtcdPeerSecret)
	members := startMembers(t, dir)
	if err := put(t.Context(), t, members[1].client, certificates.ServerSecret); err == nil {
		t.Error("a certificate of annex's other authority is a client of etcd")
	}
	before := presented(t, members[0].client)
	if err := suite.kube.CoreV1().Secrets(env.AnnexNamespace).Delete(t.Context(), certificates.EtcdServerSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSecret(t, certificates.EtcdServerSecret)
	mountFiles(t, dir, "server", certificates.EtcdServerSecret)
	err := scenario.Poll(scenario.Context(t), func(context.Context) error {
		if bytes.Equal(presented(t, members[0].client), before) {
			return errors.New("it presents the certificate of before")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("etcd does not take a renewed certificate: %v", err)
	}
	for _, m := range members {
		if err := put(t.Context(), t, m.client, certificates.EtcdClientSecret); err != nil {
			t.Errorf("member %s: %v", m.name, err)
		}
	}
}
