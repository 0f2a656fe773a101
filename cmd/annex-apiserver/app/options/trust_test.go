// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// authorities are what a server trusts.
type authorities struct {
	content  atomic.Value // a string
	listener dynamiccertificates.Listener
}

func authoritiesOf(content string) *authorities {
	a := &authorities{}
	a.content.Store(content)
	return a
}

var _ dynamiccertificates.CAContentProvider = &authorities{}

func (a *authorities) Name() string                                      { return "authorities" }
func (a *authorities) AddListener(listener dynamiccertificates.Listener) { a.listener = listener }
func (a *authorities) CurrentCABundleContent() []byte                    { return []byte(a.content.Load().(string)) }
func (a *authorities) VerifyOptions() (x509.VerifyOptions, bool)         { return x509.VerifyOptions{}, false }

// trustIn is a trust in what a is, with headers of a front proxy.
func trustIn(a *authorities, headers []string, keys ...string) *clusterTrust {
	return newClusterTrust(
		&genericapiserver.AuthenticationInfo{RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{UsernameHeaders: headerrequest.StaticStringSlice(headers)}},
		&genericapiserver.SecureServingInfo{ClientCA: a}, keys)
}

func TestTrustInSettings(t *testing.T) {
	both := map[string]string{clientCAKey: "CLIENTS\n", proxyCAKey: "PROXY\n", proxyUserKey: `["X-Remote-User"]`}
	headers := []string{"X-Remote-User"}
	tests := map[string]struct {
		settings map[string]string
		err      error
		trusted  string
		headers  []string
		keys     []string
		// want is in the reason, empty when all is known.
		want string
	}{
		"both are in use":                       {settings: both, trusted: "CLIENTS\nPROXY", headers: headers},
		"nothing is in use":                     {settings: both, headers: headers, want: clientCAKey},
		"the clients' authority is missing":     {settings: both, trusted: "PROXY", headers: headers, want: clientCAKey},
		"the front proxy's is missing":          {settings: both, trusted: "CLIENTS", headers: headers, want: proxyCAKey},
		"the headers are missing":               {settings: both, trusted: "CLIENTS\nPROXY", want: proxyUserKey},
		"an older authority is in use":          {settings: both, trusted: "OLDER\nPROXY", headers: headers, want: clientCAKey},
		"the clients' comes from a file":        {settings: both, trusted: "FILE\nPROXY", headers: headers, keys: []string{proxyCAKey}},
		"the front proxy's comes from a file":   {settings: both, trusted: "CLIENTS\nFILE", keys: []string{clientCAKey}},
		"a cluster without client certificates": {settings: map[string]string{proxyCAKey: "PROXY", proxyUserKey: `["X-Remote-User"]`}, trusted: "PROXY", headers: headers},
		"a front proxy that names nobody":       {settings: map[string]string{clientCAKey: "CLIENTS", proxyCAKey: "PROXY", proxyUserKey: "[]"}, trusted: "CLIENTS\nPROXY"},
		"the settings cannot be read":           {err: errors.New("no answer"), trusted: "CLIENTS\nPROXY", headers: headers, want: "no answer"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			keys := tc.keys
			if keys == nil {
				keys = []string{clientCAKey, proxyCAKey}
			}
			trust := trustIn(authoritiesOf(tc.trusted), tc.headers, keys...)
			trust.settings = func(context.Context) (*corev1.ConfigMap, error) { return &corev1.ConfigMap{Data: tc.settings}, tc.err }
			got := trust.check(t.Context())
			if (got == nil) != (tc.want == "") || got != nil && !strings.Contains(got.Error(), tc.want) {
				t.Errorf("got %v, want a reason with %q", got, tc.want)
			}
		})
	}
}

// TestTrustIsWaitedFor follows a server from its start: the settings cannot be read,
// then its authorities are not in use, then they are.
func TestTrustIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authoritiesOf("")
		trust := trustIn(a, nil, clientCAKey)
		var readable atomic.Bool
		trust.settings = func(context.Context) (*corev1.ConfigMap, error) {
			if !readable.Load() {
				return nil, errors.New("no answer")
			}
			return &corev1.ConfigMap{Data: map[string]string{clientCAKey: "CLIENTS"}}, nil
		}
		want := func(reason string) {
			t.Helper()
			if err := trust.known(); err == nil || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want %q", err, reason)
			}
		}
		want("just started")
		done := make(chan struct{})
		go func() {
			defer close(done)
			trust.run(t.Context())
		}()
		synctest.Wait()
		want("no answer")
		readable.Store(true)
		<-time.After(trustRetry)
		synctest.Wait()
		want(clientCAKey)
		a.content.Store("CLIENTS")
		a.listener.Enqueue()
		synctest.Wait() // without the time of another try
		if err := trust.known(); err != nil {
			t.Fatal(err)
		}
		<-done
		a.content.Store("") // what comes later is followed, not waited for
		if err := trust.known(); err != nil {
			t.Error(err)
		}
	})
}

func TestTrustEndsWithTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trust := trustIn(authoritiesOf(""), nil, clientCAKey)
	trust.settings = func(ctx context.Context) (*corev1.ConfigMap, error) { return nil, ctx.Err() }
	trust.run(ctx)
	if trust.known() == nil {
		t.Error("it knows what it has not read")
	}
}

func TestWhatIsReadFromTheCluster(t *testing.T) {
	tests := map[string]struct {
		change func(*AuthenticationOptions)
		want   []string
	}{
		"by default":                {func(*AuthenticationOptions) {}, []string{clientCAKey, proxyCAKey}},
		"clients' authority given":  {func(o *AuthenticationOptions) { o.Delegating.ClientCert.ClientCA = "f" }, []string{proxyCAKey}},
		"proxy's authority given":   {func(o *AuthenticationOptions) { o.Delegating.RequestHeader.ClientCAFile = "f" }, []string{clientCAKey}},
		"no look into the cluster":  {func(o *AuthenticationOptions) { o.Delegating.SkipInClusterLookup = true }, nil},
		"failed looks are accepted": {func(o *AuthenticationOptions) { o.Delegating.TolerateInClusterLookupFailure = true }, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			options := NewAuthenticationOptions()
			tc.change(options)
			if diff := cmp.Diff(tc.want, options.keysFromCluster()); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}
