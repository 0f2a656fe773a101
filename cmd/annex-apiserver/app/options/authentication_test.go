// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	openapicommon "k8s.io/kube-openapi/pkg/common"

	"github.com/kubeannex/annex/pkg/standalone"
	"github.com/kubeannex/annex/test/env"
)

// outcomeOf is whom an authenticator takes a request for: a name, "nobody" or "refused".
func outcomeOf(t *testing.T, authenticates authenticator.Request, change func(*http.Request)) string {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/lab.test/v1/gadgets", nil)
	change(request)
	response, ok, err := authenticates.AuthenticateRequest(request)
	switch {
	case err != nil:
		return "refused"
	case !ok:
		return "nobody"
	}
	return response.User.GetName()
}

// showing puts a client certificate on a request.
func showing(t *testing.T, ca *env.CA, user string) func(*http.Request) {
	t.Helper()
	pair, err := ca.Client(user)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return func(request *http.Request) {
		request.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{loaded.Leaf}}
	}
}

func at(path string) func(*http.Request) {
	return func(request *http.Request) { request.URL.Path = path }
}

func newCA(t *testing.T, name string) (*env.CA, string) {
	t.Helper()
	ca, err := env.NewCA(name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".crt")
	if err := os.WriteFile(file, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return ca, file
}

// TestAnonymousRequests asks without credentials, in both modes, with and without --anonymous-auth.
func TestAnonymousRequests(t *testing.T) {
	const anonymous, nobody = "system:anonymous", "nobody"
	paths := map[string][2]string{ // with the flag and without
		"/apis/lab.test/v1/gadgets": {anonymous, nobody}, "/": {anonymous, nobody}, "/version": {anonymous, nobody},
		"/metrics": {anonymous, nobody}, "/readyz/etcd": {anonymous, nobody}, "/livezes": {anonymous, nobody}, "/livez/": {anonymous, nobody},
		"/livez": {anonymous, anonymous}, "/readyz": {anonymous, anonymous}, "/healthz": {anonymous, anonymous},
	}
	authenticators := func(o *AuthenticationOptions) map[string]authenticator.Request {
		var alone, behind genericapiserver.AuthenticationInfo
		_, file := newCA(t, "own")
		tokens := filepath.Join(t.TempDir(), "tokens.csv")
		if err := os.WriteFile(tokens, []byte("secret,root,1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := o.applyStandalone(&alone, &genericapiserver.SecureServingInfo{}, &standalone.Credentials{CAFile: file, TokenFile: tokens}); err != nil {
			t.Fatal(err)
		}
		o.completeDelegation(newCluster(t).kubeconfig)
		if err := o.applyDelegated(&behind, &genericapiserver.SecureServingInfo{}, &openapicommon.Config{}); err != nil {
			t.Fatal(err)
		}
		return map[string]authenticator.Request{"alone": alone.Authenticator, "in a cluster": behind.Authenticator}
	}
	for i, flag := range []bool{true, false} {
		o := NewAuthenticationOptions()
		o.Anonymous = flag
		for mode, authenticates := range authenticators(o) {
			for path, want := range paths {
				if got := outcomeOf(t, authenticates, at(path)); got != want[i] {
					t.Errorf("%s, --anonymous-auth=%t, %s: got %s, want %s", mode, flag, path, got, want[i])
				}
			}
		}
	}
}

// TestStandaloneCertificates: --client-ca-file adds an authority to the server's own.
func TestStandaloneCertificates(t *testing.T) {
	own, ownFile := newCA(t, "own")
	further, furtherFile := newCA(t, "further")
	foreign, _ := newCA(t, "foreign")
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("secret,root,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		file string
		want []string
	}{
		"by default":     {"", []string{"ann", "refused", "refused"}},
		"with a further": {furtherFile, []string{"ann", "ann", "refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewAuthenticationOptions()
			o.Delegating.ClientCert.ClientCA = tc.file
			var info genericapiserver.AuthenticationInfo
			if err := o.applyStandalone(&info, &genericapiserver.SecureServingInfo{}, &standalone.Credentials{CAFile: ownFile, TokenFile: tokens}); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, ca := range []*env.CA{own, further, foreign} {
				got = append(got, outcomeOf(t, info.Authenticator, showing(t, ca, "ann")))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("own, further and foreign (-want +got):\n%s", diff)
			}
		})
	}
}

// TestClusterThatDoesNotAnswer: it is waited for by the server that runs, not by its start.
func TestClusterThatDoesNotAnswer(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	silent.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := env.WriteKubeconfig(kubeconfig, &rest.Config{Host: silent.URL}); err != nil {
		t.Fatal(err)
	}
	completed := completedFor(t, t.TempDir(), func(o *Options) { o.CoreAPI.CoreAPIKubeconfigPath = kubeconfig })
	config, err := completed.Config()
	if err != nil {
		t.Fatalf("the start ends: %v", err)
	}
	if config.ExtraConfig.Trust == nil || config.ExtraConfig.Trust() == nil {
		t.Error("nothing waits for the settings of the cluster")
	}
	authentication := config.GenericConfig.Authentication
	if authentication.RequestHeaderConfig == nil {
		t.Error("front proxies will never be believed")
	}
	proxy, _ := newCA(t, "proxy")
	got := outcomeOf(t, authentication.Authenticator, func(request *http.Request) {
		showing(t, proxy, "front-proxy-client")(request)
		request.Header.Set("X-Remote-User", "ann")
		request.Header.Set("X-Remote-Group", "system:masters")
	})
	if got != "system:anonymous" {
		t.Errorf("a front proxy of an unknown authority is %s", got)
	}
}
