// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdseed starts real etcds on directories that annex-apiserver etcd-seed has made.
package etcdseed

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/env/ports"
)

// cluster is three members that may be seeded, started, killed and robbed of their volumes.
type cluster struct {
	env     *env.Env
	members []*member
	// tls is the certificate of members for each other, and of clients.
	tls transport.TLSInfo
}

type member struct {
	name, volume        string
	peerURL, clientURL  string
	cluster             *cluster
	etcd                *env.Process
	etcdPath, annexPath string
}

// dataDir is below the mount point, as in the chart.
func (m *member) dataDir() string { return filepath.Join(m.volume, "data") }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	e := env.ForTest(t)
	c := &cluster{env: e, tls: certificates(t)}
	etcd, err := e.Program("etcd")
	if err != nil {
		t.Fatal(err)
	}
	annex, err := e.Program("annex-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.members = append(c.members, &member{
			name: fmt.Sprintf("annex-etcd-%d", i), volume: t.TempDir(), cluster: c, etcdPath: etcd, annexPath: annex,
			peerURL: fmt.Sprintf("https://127.0.0.1:%d", ports.Free(t)), clientURL: fmt.Sprintf("https://127.0.0.1:%d", ports.Free(t)),
		})
	}
	return c
}

// certificates makes one authority and one certificate for everything.
func certificates(t *testing.T) transport.TLSInfo {
	t.Helper()
	dir := t.TempDir()
	key := func() *ecdsa.PrivateKey {
		made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	authorityKey, ownKey := key(), key()
	authority, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "annex-test-etcd"}, authorityKey)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "member"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, authority, ownKey.Public(), authorityKey)
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	info := transport.TLSInfo{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), TrustedCAFile: filepath.Join(dir, "ca.crt")}
	for file, certificate := range map[string]*x509.Certificate{info.CertFile: own, info.TrustedCAFile: authority} {
		encoded, err := certutil.EncodeCertificates(certificate)
		if err == nil {
			err = os.WriteFile(file, encoded, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(ownKey)
	if err == nil {
		err = os.WriteFile(info.KeyFile, encoded, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// initialCluster is the value of the flag.
func (c *cluster) initialCluster() string {
	var parts []string
	for _, m := range c.members {
		parts = append(parts, m.name+"="+m.peerURL)
	}
	return strings.Join(parts, ",")
}

// shared are the flags that both programs are given.
func (m *member) shared() []string {
	return []string{
		"--name=" + m.name, "--data-dir=" + m.dataDir(), "--initial-cluster=" + m.cluster.initialCluster(), "--initial-cluster-token=annex-etcd",
		"--initial-advertise-peer-urls=" + m.peerURL, "--listen-peer-urls=" + m.peerURL,
		"--peer-cert-file=" + m.cluster.tls.CertFile, "--peer-key-file=" + m.cluster.tls.KeyFile, "--peer-trusted-ca-file=" + m.cluster.tls.TrustedCAFile,
	}
}

// seed begins to seed a member.
func (m *member) seed(t *testing.T) *env.Process {
	t.Helper()
	process, err := m.cluster.env.StartProcess(env.Command{Name: m.name + "-seed", Path: m.annexPath, Args: append([]string{"etcd-seed"}, m.shared()...)})
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// ended waits for the end of a seeding and returns its exit code and its last line.
func ended(ctx context.Context, t *testing.T, process *env.Process) (code int, last string) {
	t.Helper()
	select {
	case <-process.Exited():
	case <-ctx.Done():
		t.Fatalf("%s does not end:\n%s", process.Name(), process.Log())
	}
	lines := strings.Split(strings.TrimSpace(process.Log()), "\n")
	return process.ExitCode(), lines[len(lines)-1]
}

// mustSeed waits for the end of seedings that have to go well.
func mustSeed(ctx context.Context, t *testing.T, want string, processes ...*env.Process) {
	t.Helper()
	for _, process := range processes {
		if code, last := ended(ctx, t, process); code != 0 || !strings.Contains(last, want) {
			t.Fatalf("%s ends with code %d and %q, want 0 and %q in it", process.Name(), code, last, want)
		}
	}
}

// start runs etcd, which is never told that the cluster is new.
func (m *member) start(t *testing.T) {
	t.Helper()
	info := m.cluster.tls
	args := append(m.shared(), "--initial-cluster-state=existing", "--peer-client-cert-auth", "--client-cert-auth",
		"--listen-client-urls="+m.clientURL, "--advertise-client-urls="+m.clientURL,
		"--cert-file="+info.CertFile, "--key-file="+info.KeyFile, "--trusted-ca-file="+info.TrustedCAFile)
	var err error
	if m.etcd, err = m.cluster.env.StartProcess(env.Command{Name: m.name, Path: m.etcdPath, Args: args, Ready: m.ready}); err != nil {
		t.Fatal(err)
	}
}

// ready asks for the member's own health check, which a member without a majority fails.
func (m *member) ready(ctx context.Context) error {
	config, err := m.cluster.tls.ClientConfig()
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.clientURL+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", m.name, answer.Status)
	}
	return nil
}

func startAll(ctx context.Context, t *testing.T, members ...*member) {
	t.Helper()
	for _, m := range members {
		m.start(t)
	}
	for _, m := range members {
		if err := m.etcd.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// lose kills a member and takes its data away.
func (m *member) lose(t *testing.T) {
	t.Helper()
	if err := m.etcd.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(m.dataDir()); err != nil {
		t.Fatal(err)
	}
}

// client talks to one member.
func (m *member) client(t *testing.T) *clientv3.Client {
	t.Helper()
	config, err := m.cluster.tls.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.clientURL}, TLS: config, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // the test ends
	return client
}

// put writes through one member until it succeeds: what is under way when a leader goes is lost.
func (m *member) put(ctx context.Context, t *testing.T, value string) {
	t.Helper()
	client := m.client(t)
	for {
		_, err := client.Put(ctx, "key", value)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("writing %q: %v", value, err)
		}
	}
}

// etcdctl runs a command as an operator does, at one member.
func (m *member) etcdctl(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	program, err := m.cluster.env.Program("etcdctl")
	if err != nil {
		t.Fatal(err)
	}
	info := m.cluster.tls
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		cmd := exec.CommandContext(ctx, program, append([]string{
			"--endpoints=" + m.clientURL, "--cacert=" + info.TrustedCAFile, "--cert=" + info.CertFile, "--key=" + info.KeyFile,
		}, args...)...)
		output, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			return
		// Etcd changes members only when all that there are have been connected for some seconds.
		case !strings.Contains(string(output), "unhealthy cluster"):
			t.Fatalf("etcdctl %s: %v\n%s", strings.Join(args, " "), err, output)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("etcdctl %s: %s", strings.Join(args, " "), output)
		}
	}
}

// strangerConfig is a client without a certificate.
func (c *cluster) strangerConfig(t *testing.T) *tls.Config {
	t.Helper()
	pool, err := certutil.NewPool(c.tls.TrustedCAFile)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}
