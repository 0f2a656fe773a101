// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubeannex/annex/pkg/serving"
)

// authorities are what a server trusts.
type authorities struct {
	content   atomic.Value // a string
	listeners []dynamiccertificates.Listener
}

func authoritiesOf(content string) *authorities {
	a := &authorities{}
	a.content.Store(content)
	return a
}

var _ dynamiccertificates.CAContentProvider = &authorities{}

func (a *authorities) Name() string { return "authorities" }
func (a *authorities) AddListener(listener dynamiccertificates.Listener) {
	a.listeners = append(a.listeners, listener)
}
func (a *authorities) CurrentCABundleContent() []byte            { return []byte(a.content.Load().(string)) }
func (a *authorities) VerifyOptions() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, false }

// missing is the answer for the settings of a cluster that has none.
func missing() error {
	return apierrors.NewNotFound(corev1.Resource("configmaps"), settingsName)
}

// trustIn is a trust in what a is, with headers of a front proxy.
func trustIn(a *authorities, headers []string, keys ...string) *clusterTrust {
	return newClusterTrust(
		&genericapiserver.AuthenticationInfo{RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{UsernameHeaders: headerrequest.StaticStringSlice(headers)}},
		&genericapiserver.SecureServingInfo{ClientCA: a}, keys)
}

func TestTrustInSettings(t *testing.T) {
	both := map[string]string{clientCAKey: "CLIENTS\n", proxyCAKey: "PROXY\n", proxyUserKey: `["X-Remote-User"]`}
	headers := []string{"X-Remote-User"}
	certificate := certificatePEM(t)
	proxyOnly := func(entry string) map[string]string {
		return map[string]string{proxyCAKey: "PROXY", proxyUserKey: entry}
	}
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
		"an authority is taken over later":      {settings: map[string]string{clientCAKey: certificate}, want: clientCAKey + " was not taken over"},
		"an authority cannot be parsed":         {settings: both, headers: headers, want: "delete the ConfigMap"},
		"one of several cannot be parsed":       {settings: map[string]string{clientCAKey: certificate + damaged}, want: "delete the ConfigMap"},
		"the headers cannot be parsed":          {settings: proxyOnly("X-Remote-User"), trusted: "PROXY", want: proxyUserKey + " cannot be read"},
		"a front proxy without headers":         {settings: proxyOnly(""), trusted: "PROXY"},
		"there are no settings yet":             {err: missing(), want: "does not exist"},
		"something else answers":                {err: apierrors.NewGenericServerResponse(404, "get", corev1.Resource("configmaps"), settingsName, "", 0, true), want: "could not find"},
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

// damaged is an authority that cannot be parsed.
const damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

func certificatePEM(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "clients"}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: ca.Raw}))
}

// TestSettingsThatNeverExist follows a server whose cluster has no authorities: it
// serves once the settings were missing for trustAbsence without a break.
func TestSettingsThatNeverExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trust := trustIn(authoritiesOf(""), nil, clientCAKey, proxyCAKey)
		answer := atomic.Pointer[error]{}
		say := func(err error) { answer.Store(&err) }
		trust.settings = func(context.Context) (*corev1.ConfigMap, error) { return &corev1.ConfigMap{}, *answer.Load() }
		say(missing())
		done := make(chan struct{})
		go func() {
			defer close(done)
			trust.run(t.Context())
		}()
		wait := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		wait(trustAbsence - trustRetry/2)
		if trust.known() == nil {
			t.Fatal("it was not waited for the settings")
		}
		say(errors.New("no answer")) // the cluster starts again
		wait(trustRetry)
		say(missing())
		wait(trustAbsence)
		if trust.known() == nil {
			t.Fatal("the time before a break counts")
		}
		wait(2 * trustRetry)
		if err := trust.known(); err != nil {
			t.Fatal(err)
		}
		<-done
	})
}

// TestReasonsAreLogged: whatever lasts is logged once, in one line that says how to do without.
func TestReasonsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		a := authoritiesOf("")
		trust := trustIn(a, nil, clientCAKey)
		var refuse atomic.Bool
		trust.settings = func(context.Context) (*corev1.ConfigMap, error) {
			if refuse.Load() {
				return nil, errors.New("no answer")
			}
			return &corev1.ConfigMap{Data: map[string]string{clientCAKey: "CLIENTS"}}, nil
		}
		go trust.run(klog.NewContext(t.Context(), logger))
		logged := func() []string {
			synctest.Wait()
			var reasons []string
			for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
				reasons = append(reasons, fmt.Sprint(entry.WithKVList, entry.ParameterKVList))
			}
			return reasons
		}
		if got := logged(); len(got) != 0 {
			t.Errorf("at the start: %q", got)
		}
		<-time.After(5 * trustRetry)
		refuse.Store(true)
		<-time.After(5 * trustRetry)
		got := logged()
		if len(got) != 2 || !strings.Contains(got[0], clientCAKey) || !strings.Contains(got[1], "no answer") {
			t.Fatalf("want one line for each reason: %q", got)
		}
		for _, line := range got {
			if strings.Contains(line, "\n") || !strings.Contains(line, "--authentication-skip-lookup") || !strings.Contains(line, "--authentication-tolerate-lookup-failure") {
				t.Errorf("want one line with both flags: %q", line)
			}
		}
		if _, ok := errors.AsType[*serving.TrustError](trust.known()); !ok {
			t.Errorf("%T is not counted", trust.known())
		}
		refuse.Store(false)
		a.content.Store("CLIENTS")
		<-time.After(trustRetry)
		if len(logged()) != 2 {
			t.Errorf("what is over is logged: %q", logged())
		}
	})
}

// TestHintsAreWhole: no handshake names some of the authorities only.
func TestHintsAreWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authoritiesOf("")
		port := &genericapiserver.SecureServingInfo{ClientCA: a}
		trust := newClusterTrust(&genericapiserver.AuthenticationInfo{}, port, []string{clientCAKey, proxyCAKey})
		trust.settings = func(context.Context) (*corev1.ConfigMap, error) {
			return &corev1.ConfigMap{Data: map[string]string{clientCAKey: "CLIENTS", proxyCAKey: "PROXY"}}, nil
		}
		told := &told{content: port.ClientCA.CurrentCABundleContent}
		port.ClientCA.AddListener(told)
		go trust.run(t.Context())
		for _, content := range []string{"PROXY", "CLIENTS\nPROXY", "NEWER\nPROXY"} {
			synctest.Wait()
			a.content.Store(content)
			for _, listener := range a.listeners {
				listener.Enqueue()
			}
		}
		synctest.Wait()
		got := slices.Compact(told.contents)
		if diff := cmp.Diff([]string{"", "CLIENTS\nPROXY", "NEWER\nPROXY"}, got); diff != "" {
			t.Errorf("authorities in handshakes (-want +got):\n%s", diff)
		}
	})
}

// told notes what a port would name whenever it is told of a change.
type told struct {
	content  func() []byte
	lock     sync.Mutex
	contents []string
}

func (l *told) Enqueue() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.contents = append(l.contents, string(l.content()))
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
		a.listeners[0].Enqueue()
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
