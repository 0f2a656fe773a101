// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
)

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443}

// contents returns every file below dir by its relative name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func prepare(t *testing.T, dir string, address *net.TCPAddr, names ...string) *Credentials {
	t.Helper()
	credentials, err := Prepare(dir, address, names)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	return credentials
}

func TestPrepareReusesCredentials(t *testing.T) {
	dir := t.TempDir()
	first := prepare(t, dir, loopback)
	before := contents(t, dir)
	second := prepare(t, dir, loopback)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("credentials changed (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("files changed (-first +second):\n%s", diff)
	}
}

func TestPrepareIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root")
	prepare(t, dir, loopback)
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v: other users can read it", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAdministratorIsPrivileged(t *testing.T) {
	dir := t.TempDir()
	credentials := prepare(t, dir, loopback)

	config, err := clientcmd.BuildConfigFromFlags("", credentials.KubeconfigFile)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := load(filepath.Join(dir, certificatesDir), "admin")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(admin.certPEM), string(config.CertData)); diff != "" {
		t.Errorf("kubeconfig holds another certificate (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{user.SystemPrivilegedGroup}, admin.cert.Subject.Organization); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}

	tokens, err := tokenfile.NewCSV(credentials.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(credentials.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	token, _, _ := strings.Cut(string(content), ",")
	response, ok, err := tokens.AuthenticateToken(t.Context(), token)
	if err != nil || !ok {
		t.Fatalf("token is not accepted: %v, %v", ok, err)
	}
	if diff := cmp.Diff([]string{user.SystemPrivilegedGroup}, response.User.GetGroups()); diff != "" {
		t.Errorf("groups of the token (-want +got):\n%s", diff)
	}
}

func TestServingCertificateNames(t *testing.T) {
	tests := map[string]struct {
		address   *net.TCPAddr
		names     []string
		wantValid []string
		wantURL   string
	}{
		"loopback only": {
			address:   loopback,
			wantValid: []string{"localhost", "127.0.0.1", "::1"},
			wantURL:   "https://127.0.0.1:6443",
		},
		"all interfaces": {
			address:   &net.TCPAddr{IP: net.IPv4zero, Port: 7443},
			wantValid: []string{"localhost", "127.0.0.1"},
			wantURL:   "https://localhost:7443",
		},
		"one interface and a service name": {
			address:   &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 6443},
			names:     []string{"annex.annex-system.svc"},
			wantValid: []string{"192.0.2.7", "annex.annex-system.svc", "localhost"},
			wantURL:   "https://192.0.2.7:6443",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			credentials := prepare(t, dir, tc.address, tc.names...)
			serving, err := load(filepath.Join(dir, certificatesDir), "serving")
			if err != nil {
				t.Fatal(err)
			}
			for _, host := range tc.wantValid {
				if err := serving.cert.VerifyHostname(host); err != nil {
					t.Errorf("certificate is not valid for %s: %v", host, err)
				}
			}
			config, err := clientcmd.BuildConfigFromFlags("", credentials.KubeconfigFile)
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != tc.wantURL {
				t.Errorf("server in kubeconfig: got %s, want %s", config.Host, tc.wantURL)
			}
		})
	}
}

func TestServingCertificateIsRenewed(t *testing.T) {
	tests := map[string]struct {
		change func(t *testing.T, dir string)
		second *net.TCPAddr
	}{
		"the address has changed": {
			second: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 6443},
		},
		"it ends soon": {
			change: func(t *testing.T, dir string) {
				certificates := filepath.Join(dir, certificatesDir)
				ca, err := loadOrCreateAuthority(certificates)
				if err != nil {
					t.Fatal(err)
				}
				issueEnding(t, ca, certificates, time.Now().Add(renewBefore/2))
			},
			second: loopback,
		},
		"it was lost together with its key": {
			change: func(t *testing.T, dir string) {
				for _, suffix := range []string{"crt", "key"} {
					if err := os.Remove(filepath.Join(dir, certificatesDir, "serving."+suffix)); err != nil {
						t.Fatal(err)
					}
				}
			},
			second: loopback,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prepare(t, dir, loopback)
			before := contents(t, dir)
			if tc.change != nil {
				tc.change(t, dir)
			}
			prepare(t, dir, tc.second)
			after := contents(t, dir)
			serving := filepath.Join(certificatesDir, "serving.crt")
			if before[serving] == after[serving] {
				t.Error("serving certificate was not renewed")
			}
			ca := filepath.Join(certificatesDir, "ca.crt")
			if diff := cmp.Diff(before[ca], after[ca]); diff != "" {
				t.Errorf("authority changed (-before +after):\n%s", diff)
			}
		})
	}
}

// issueEnding replaces the serving certificate by one that ends at the given time.
func issueEnding(t *testing.T, ca *authority, dir string, end time.Time) {
	t.Helper()
	template := servingTemplate(loopback.IP, nil)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = ca.cert.SerialNumber
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), end
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store(dir, "serving", cert, key); err != nil {
		t.Fatal(err)
	}
}

func TestPrepareRefusesDamage(t *testing.T) {
	tests := map[string]struct {
		file    string
		content string // empty removes the file
		want    []string
	}{
		"garbage in the authority's certificate": {
			file: "certificates/ca.crt", content: "garbage",
			want: []string{"ca.crt", "restore the files from a backup"},
		},
		"the authority's key is missing": {
			file: "certificates/ca.key",
			want: []string{"ca.key", "missing", "restore the files from a backup"},
		},
		"garbage in the serving key": {
			file: "certificates/serving.key", content: "garbage",
			want: []string{"serving.crt", "remove the file"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prepare(t, dir, loopback)
			path := filepath.Join(dir, tc.file)
			if tc.content == "" {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			_, err := Prepare(dir, loopback, nil)
			if err == nil {
				t.Fatal("damaged credentials were accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
				t.Errorf("refused files changed (-before +after):\n%s", diff)
			}
		})
	}
}
