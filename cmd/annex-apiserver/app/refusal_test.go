// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/pkg/standalone"
	"github.com/kubeannex/annex/test/env/ports"
)

func TestRefusesFlags(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"unknown flag": {
			args: []string{"--no-such-flag"},
			want: []string{"unknown flag: --no-such-flag", "see annex-apiserver --help"},
		},
		"an argument": {
			args: []string{"serve"},
			want: []string{`unknown command "serve"`, "see annex-apiserver --help"},
		},
		"a value of the wrong type": {
			args: []string{"--secure-port=https"},
			want: []string{"--secure-port", "https", "see annex-apiserver --help"},
		},
		"a switch that is neither on nor off": {
			args: []string{"--standalone=maybe"},
			want: []string{`"maybe" for "--standalone"`, "see annex-apiserver --help"},
		},
		"an unknown format of the log": {
			args: []string{"--standalone", "--logging-format=xml"},
			want: []string{"xml", "correct --logging-format"},
		},
		"a serving certificate without its key": {
			args: []string{"--standalone", "--tls-cert-file=x"},
			want: []string{"--tls-cert-file needs --tls-private-key-file"},
		},
		"a serving key without its certificate": {
			args: []string{"--standalone", "--tls-private-key-file=x"},
			want: []string{"--tls-private-key-file needs --tls-cert-file"},
		},
		"a certificate for etcd without its key": {
			args: []string{"--standalone", "--etcd-servers=https://127.0.0.1:1", "--etcd-certfile=x"},
			want: []string{"--etcd-certfile and --etcd-keyfile belong together"},
		},
		"a quota of the embedded etcd beside external ones": {
			args: []string{"--standalone", "--etcd-servers=http://127.0.0.1:1", "--embedded-etcd-quota-bytes=1"},
			want: []string{"--embedded-etcd-quota-bytes and external --etcd-servers contradict", "drop one"},
		},
		"a limit of the embedded etcd beside external ones": {
			args: []string{"--standalone", "--etcd-servers=http://127.0.0.1:1", "--embedded-etcd-max-request-bytes=1"},
			want: []string{"--embedded-etcd-max-request-bytes and external --etcd-servers contradict", "drop one"},
		},
		"an override that names the embedded etcd": {
			args: []string{"--standalone", "--etcd-servers-overrides=demo.kubeannex.io/podendpoints#embedded"},
			want: []string{"--etcd-servers-overrides", "podendpoints.demo.kubeannex.io", "takes URLs"},
		},
		"alone and in a cluster": {
			args: []string{"--standalone", "--kubeconfig=x"},
			want: []string{"--standalone and --kubeconfig contradict each other", "drop one"},
		},
		"alone, with authentication by a cluster": {
			args: []string{"--standalone", "--authentication-kubeconfig=x"},
			want: []string{"--authentication-kubeconfig", "contradict"},
		},
		"alone, with authorization by a cluster": {
			args: []string{"--standalone", "--authorization-kubeconfig=x"},
			want: []string{"--authorization-kubeconfig", "contradict"},
		},
		"alone, with a front proxy": {
			args: []string{"--standalone", "--requestheader-client-ca-file=x"},
			want: []string{"--requestheader-client-ca-file", "contradict"},
		},
		"alone, with fairness that needs a cluster": {
			args: []string{"--standalone", "--enable-priority-and-fairness=true"},
			want: []string{"--enable-priority-and-fairness", "contradict"},
		},
		"a flag without effect": {
			args: []string{"--standalone", "--watch-cache-sizes=annexedgroups.kubeannex.io#0"},
			want: []string{"unknown flag: --watch-cache-sizes"},
		},
		"an unknown feature": {
			args: []string{"--standalone", "--feature-gates=NoSuchFeature=true"},
			want: []string{"unrecognized feature gate: NoSuchFeature", "correct --feature-gates"},
		},
		"alone, with admission that needs a cluster": {
			args: []string{"--standalone", "--enable-admission-plugins=NamespaceLifecycle"},
			want: []string{"--enable-admission-plugins", "contradict"},
		},
		"static tokens in a cluster": {
			args: []string{"--token-auth-file=x", "--kubeconfig=x"},
			want: []string{"--token-auth-file needs --standalone"},
		},
		"an authorization webhook in a cluster": {
			args: []string{"--authorization-webhook-config-file=x", "--kubeconfig=x"},
			want: []string{"--authorization-webhook-config-file needs --standalone"},
		},
		"embedded and external etcd": {
			args: []string{"--standalone", "--etcd-servers=embedded,http://127.0.0.1:2379"},
			want: []string{"--etcd-servers", "either the embedded etcd or external ones"},
		},
		"certificates for the embedded etcd": {
			args: []string{"--standalone", "--etcd-cafile=x"},
			want: []string{"--etcd-cafile", "need external servers"},
		},
		"a malformed override": {
			args: []string{"--standalone", "--etcd-servers-overrides=widgets"},
			want: []string{"--etcd-servers-overrides", "group/resource#servers"},
		},
		"a negative revision floor": {
			args: []string{"--standalone", "--etcd-revision-floor=-1"},
			want: []string{"--etcd-revision-floor", "must not be negative"},
		},
		"no replica": {
			args: []string{"--standalone", "--apiserver-count=0"},
			want: []string{"--apiserver-count", "at least 1"},
		},
		"no root directory": {
			args: []string{"--standalone", "--root-dir="},
			want: []string{"--root-dir is empty"},
		},
		"several mistakes at once": {
			args: []string{"--standalone", "--kubeconfig=x", "--apiserver-count=0"},
			want: []string{"--kubeconfig", "--apiserver-count", "; "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assertContains(t, runRefused(t, tc.args...), tc.want)
		})
	}
}

func TestRefusesSurroundings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	garbage := write("garbage", "garbage\n")
	goodCert, goodKey := certificate(t, dir, "good", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	_, otherKey := certificate(t, dir, "other", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	expiredCert, expiredKey := certificate(t, dir, "expired", time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	futureCert, futureKey := certificate(t, dir, "future", time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))
	occupied := listen(t)

	tests := map[string]struct {
		args []string
		// logs is true where etcd or a cluster was asked before, which is logged.
		logs bool
		want []string
	}{
		"no cluster": {
			want: []string{"no cluster found", "--standalone"},
		},
		"a kubeconfig that is not there": {
			args: []string{"--kubeconfig=" + filepath.Join(dir, "missing")},
			want: []string{"missing", "connecting to the cluster"},
		},
		"a kubeconfig that is none": {
			args: []string{"--kubeconfig=" + garbage},
			want: []string{"garbage", "connecting to the cluster"},
		},
		"an occupied port": {
			args: []string{"--standalone", "--secure-port=" + strconv.Itoa(occupied)},
			want: []string{"address already in use", "--secure-port", strconv.Itoa(occupied)},
		},
		"an unreachable etcd": {
			args: []string{"--standalone", "--etcd-servers=http://127.0.0.1:1"},
			want: []string{"etcd http://127.0.0.1:1", "start etcd or correct --etcd-servers"},
		},
		"an unreadable etcd authority": {
			args: []string{"--standalone", "--etcd-servers=https://127.0.0.1:1", "--etcd-cafile=" + filepath.Join(dir, "missing")},
			want: []string{"missing", "--etcd-cafile"},
		},
		"a missing serving certificate": {
			args: []string{"--standalone", "--tls-cert-file=" + filepath.Join(dir, "missing"), "--tls-private-key-file=" + goodKey},
			want: []string{"missing", "--tls-cert-file"},
		},
		"a serving certificate that is none": {
			args: []string{"--standalone", "--tls-cert-file=" + garbage, "--tls-private-key-file=" + goodKey},
			want: []string{"garbage", "--tls-cert-file"},
		},
		"the key of another certificate": {
			args: []string{"--standalone", "--tls-cert-file=" + goodCert, "--tls-private-key-file=" + otherKey},
			want: []string{"good.crt", "does not match", "--tls-private-key-file"},
		},
		"an expired serving certificate": {
			args: []string{"--standalone", "--tls-cert-file=" + expiredCert, "--tls-private-key-file=" + expiredKey},
			want: []string{"expired.crt", "expired on", "renew"},
		},
		"a serving certificate of the future": {
			args: []string{"--standalone", "--tls-cert-file=" + futureCert, "--tls-private-key-file=" + futureKey},
			want: []string{"future.crt", "valid only from", "clock"},
		},
		"an address of another machine": {
			args: []string{"--standalone", "--bind-address=192.0.2.77"},
			want: []string{"192.0.2.77", "--bind-address"},
		},
		"an unknown cipher": {
			args: []string{"--standalone", "--tls-cipher-suites=NOPE"},
			want: []string{"NOPE", "correct the --tls flags"},
		},
		"an expired authority of client certificates": {
			args: []string{"--standalone", "--client-ca-file=" + expiredCert},
			want: []string{"expired.crt", "--client-ca-file", "expired on", "renew"},
		},
		"an expired certificate for etcd": {
			args: []string{"--standalone", "--etcd-servers=https://127.0.0.1:1", "--etcd-certfile=" + expiredCert, "--etcd-keyfile=" + expiredKey},
			want: []string{"expired.crt", "--etcd-certfile", "renew"},
		},
		"an encryption configuration that is not there": {
			args: []string{"--standalone", "--encryption-provider-config=" + filepath.Join(dir, "missing")},
			want: []string{"missing", "correct --encryption-provider-config"},
		},
		"an etcd that does not answer, behind a cluster that does not either": { // the cluster is waited for
			args: []string{"--kubeconfig=" + deadCluster(t, dir), "--etcd-servers=http://127.0.0.1:1"},
			logs: true,
			want: []string{"etcd http://127.0.0.1:1", "start etcd or correct --etcd-servers"},
		},
		"an authority that is none": {
			args: []string{"--standalone", "--client-ca-file=" + garbage},
			want: []string{"--client-ca-file", "garbage"},
		},
		"a token file that is none": {
			args: []string{"--standalone", "--token-auth-file=" + garbage},
			want: []string{"token file", "garbage", "correct the file"},
		},
		"a token webhook without a file": {
			args: []string{"--standalone", "--authentication-token-webhook-config-file=" + filepath.Join(dir, "missing")},
			want: []string{"--authentication-token-webhook-config-file", "missing"},
		},
		"an authorization webhook without a file": {
			args: []string{"--standalone", "--authorization-webhook-config-file=" + filepath.Join(dir, "missing")},
			want: []string{"--authorization-webhook-config-file", "missing"},
		},
		"an audit policy that is none": {
			args: []string{"--standalone", "--audit-policy-file=" + garbage, "--audit-log-path=-"},
			want: []string{"audit", "garbage"},
		},
		"a root directory that is a file": {
			args: []string{"--standalone", "--root-dir=" + garbage},
			want: []string{"garbage"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--root-dir=" + filepath.Join(t.TempDir(), "root"), "--secure-port=" + strconv.Itoa(ports.Free(t))}, tc.args...)
			if tc.logs {
				lines := runFailed(t, args...)
				assertContains(t, lines[len(lines)-1], tc.want)
				return
			}
			assertContains(t, runRefused(t, args...), tc.want)
		})
	}
}

func TestRefusesRootDirectoryWithoutDamage(t *testing.T) {
	tests := map[string]struct {
		damage func(t *testing.T, root string)
		want   []string
	}{
		"garbage in the database": {
			damage: overwrite("etcd/member/snap/db"),
			want:   []string{"etcd", "restore"},
		},
		"garbage in the authority": {
			damage: overwrite("certificates/ca.crt"),
			want:   []string{"ca.crt", "restore"},
		},
		"garbage in the serving key": {
			damage: overwrite("certificates/serving.key"),
			want:   []string{"serving", "remove the file"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "root")
			serveOnce(t, root)
			tc.damage(t, root)
			kept := func() map[string]string {
				files := tree(t, root)
				delete(files, standalone.AdminKubeconfig) // written anew at every start, with the port
				return files
			}
			before := kept()
			assertContains(t, runRefused(t, "--standalone", "--root-dir="+root, "--secure-port="+strconv.Itoa(ports.Free(t))), tc.want)
			if diff := cmp.Diff(before, kept()); diff != "" {
				t.Errorf("the refused directory changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestRefusesRootDirectoryInUse(t *testing.T) {
	external, err := embedded.Start(t.Context(), embedded.Options{RootDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := external.Close(); err != nil {
			t.Error(err)
		}
	})
	tests := map[string][]string{
		"with the embedded etcd":  nil,
		"with external etcd only": {"--etcd-servers=" + external.Endpoints()[0]},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			server := startServer(t, root, args...)
			last := runRefused(t, append([]string{"--standalone", "--root-dir=" + root, "--secure-port=" + strconv.Itoa(ports.Free(t))}, args...)...)
			assertContains(t, last, []string{"in use by another annex-apiserver", strconv.Itoa(server.Process.Pid), "--root-dir"})
			stopServer(t, server)
		})
	}
}

func assertContains(t *testing.T, line string, want []string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(line, w) {
			t.Errorf("%q does not say %q", line, w)
		}
	}
}

func overwrite(name string) func(*testing.T, string) {
	return func(t *testing.T, root string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// deadCluster writes the kubeconfig of a server that does not exist.
func deadCluster(t *testing.T, dir string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["dead"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts["dead"] = &clientcmdapi.Context{Cluster: "dead"}
	config.CurrentContext = "dead"
	path := filepath.Join(dir, "dead.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// listen occupies a port until the test ends.
func listen(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() }) //nolint:errcheck // nothing was sent
	return listener.Addr().(*net.TCPAddr).Port
}

// certificate writes a self-signed pair and returns its files.
func certificate(t *testing.T, dir, name string, notBefore, notAfter time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{"localhost"},
		NotBefore:    notBefore,
		NotAfter:     notAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for path, content := range map[string][]byte{
		certFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyFile:  keyPEM,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
