// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeannex/annex/test/env"
)

// TestClientAuthorityRotation replaces the file of --client-ca-file below a server: clients of the new
// authority are believed and those of the former are not, and the server's own authority stays.
func TestClientAuthorityRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, file := filepath.Join(dir, "root"), filepath.Join(dir, "clients.crt")
	former, next := newAuthority(t, "former"), newAuthority(t, "next")
	replaceFile(t, file, former.PEM())
	server := startServer(t, root, "--client-ca-file="+file)
	defer stopServer(t, server)
	admin, err := clientcmd.BuildConfigFromFlags("", filepath.Join(root, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	clients := map[string]*rest.Config{"admin": admin, "former": clientOf(t, admin, former), "next": clientOf(t, admin, next)}
	ask := func(ctx context.Context, want map[string]string) (wrong string) {
		for name, config := range clients {
			_, err := getWith(ctx, config, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
			got := "believed"
			if err != nil {
				got, _, _ = strings.Cut(err.Error(), ":")
			}
			if got != want[name] {
				wrong += name + " is " + got + ", want " + want[name] + "; "
			}
		}
		return wrong
	}
	if wrong := ask(t.Context(), map[string]string{"admin": "believed", "former": "believed", "next": "401"}); wrong != "" {
		t.Fatalf("before: %s", wrong)
	}
	replaceFile(t, file, next.PEM())
	wrong := "not asked; "
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		found := ask(ctx, map[string]string{"admin": "believed", "former": "401", "next": "believed"})
		if ctx.Err() == nil {
			wrong = found
		}
		return wrong == "", nil
	})
	if err != nil {
		t.Errorf("after: %s%v", wrong, err)
	}
}

func newAuthority(t *testing.T, name string) *env.CA {
	t.Helper()
	authority, err := env.NewCA(name)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// clientOf is an administrator with a certificate of the authority.
func clientOf(t *testing.T, server *rest.Config, authority *env.CA) *rest.Config {
	t.Helper()
	pair, err := authority.Client("ann", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(server)
	config.CertData, config.KeyData = pair.Cert, pair.Key
	return config
}

// replaceFile lets nobody see half of the content.
func replaceFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
