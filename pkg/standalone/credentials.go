// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"crypto/rand"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// adminUser is the name of the administrator in certificate and token.
	adminUser = "annex-admin"
	// ServerName is a name that the server's own certificate is valid for, wherever
	// it listens. The administrator's kubeconfig asks for it.
	ServerName = "annex-apiserver"
	// AdminKubeconfig is the name of the administrator's kubeconfig in the root directory.
	AdminKubeconfig = "admin.kubeconfig"
	// tokensFile is the name of the static token file in the root directory.
	tokensFile = "tokens.csv"
	// certificatesDir is the name of the folder of keys and certificates in the root directory.
	certificatesDir = "certificates"
)

// Credentials are the files that a standalone server works with.
type Credentials struct {
	// CAFile is the certificate authority of client and serving certificates.
	CAFile string
	// ServingCertFile and ServingKeyFile identify the server.
	ServingCertFile string
	ServingKeyFile  string
	// TokenFile lists static tokens, as k8s.io/apiserver pkg/authentication/token/tokenfile reads them.
	TokenFile string
	// KubeconfigFile lets kubectl act as administrator.
	KubeconfigFile string
}

// Prepare returns the credentials in rootDir and makes those that are missing.
//
// address is where the server listens; alternateNames are further DNS names and
// IP addresses of the server in its certificate. An existing file that cannot be used is an error
// that names it and says how to mend it.
func Prepare(rootDir string, address *net.TCPAddr, alternateNames []string) (*Credentials, error) {
	dir := filepath.Join(rootDir, certificatesDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the certificate directory: %w", err)
	}
	authority, err := loadOrCreateAuthority(dir)
	if err != nil {
		return nil, err
	}
	serving, err := authority.loadOrIssue(dir, "serving", servingTemplate(address.IP, alternateNames))
	if err != nil {
		return nil, err
	}
	admin, err := authority.loadOrIssue(dir, "admin", adminTemplate())
	if err != nil {
		return nil, err
	}
	credentials := &Credentials{
		CAFile:          authority.certFile,
		ServingCertFile: serving.certFile,
		ServingKeyFile:  serving.keyFile,
		TokenFile:       filepath.Join(rootDir, tokensFile),
		KubeconfigFile:  filepath.Join(rootDir, AdminKubeconfig),
	}
	if err := writeKubeconfig(credentials.KubeconfigFile, serverURL(address), authority, admin); err != nil {
		return nil, err
	}
	if err := createTokenFile(credentials.TokenFile); err != nil {
		return nil, err
	}
	return credentials, nil
}

// serverURL is the address for clients on this machine.
func serverURL(address *net.TCPAddr) string {
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "localhost"
	}
	return "https://" + net.JoinHostPort(host, fmt.Sprint(address.Port))
}

// writeKubeconfig writes the administrator's kubeconfig anew at every start:
// the port and the certificate may have changed.
func writeKubeconfig(path, server string, authority *authority, admin *pair) error {
	const name = "annex"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, TLSServerName: ServerName, CertificateAuthorityData: authority.certPEM}
	config.AuthInfos[adminUser] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.certPEM, ClientKeyData: admin.keyPEM}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: adminUser}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig: %w", err)
	}
	return writeFile(path, content)
}

// createTokenFile makes one token for the administrator, unless the file is there.
func createTokenFile(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return fmt.Errorf("generating a token: %w", err)
	}
	var content strings.Builder
	writer := csv.NewWriter(&content)
	if err := writer.Write([]string{hex.EncodeToString(random), adminUser, adminUser, user.SystemPrivilegedGroup}); err != nil {
		return fmt.Errorf("encoding the token file: %w", err)
	}
	writer.Flush()
	return writeFile(path, []byte(content.String()))
}

// writeFile replaces a file in one step, so that a crash leaves the old or the new one.
func writeFile(path string, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(temporary.Name()) //nolint:errcheck // it is gone after the rename
	_, writeErr := temporary.Write(content)
	if err := errors.Join(writeErr, temporary.Sync(), temporary.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// contains reports whether all of want are in have.
func contains[T comparable](have, want []T) bool {
	return !slices.ContainsFunc(want, func(w T) bool { return !slices.Contains(have, w) })
}
