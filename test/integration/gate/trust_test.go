// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/pkg/serving"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// slowCluster is a cluster that allows nothing, and tells nobody whom it trusts until it is ready.
type slowCluster struct {
	settings corev1.ConfigMap
	// absent says that the settings cannot be read by name either before.
	absent bool
	ready  chan struct{}
}

func (c *slowCluster) isReady() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

func (c *slowCluster) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	const path = "/api/v1/namespaces/kube-system/configmaps"
	resource := schema.GroupResource{Resource: "configmaps"}
	query := req.URL.Query()
	switch {
	case strings.HasSuffix(req.URL.Path, "/subjectaccessreviews"):
		answer(w, http.StatusCreated, &authorizationv1.SubjectAccessReview{
			TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
		})
	case req.URL.Path == path && query.Get("sendInitialEvents") != "":
		// As a server does that knows lists only.
		refuse(w, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
	case req.URL.Path == path && query.Has("watch"):
		<-req.Context().Done()
	case req.URL.Path == path:
		select {
		case <-c.ready:
		case <-req.Context().Done():
			return
		}
		answer(w, http.StatusOK, &corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []corev1.ConfigMap{c.settings},
		})
	case req.URL.Path == path+"/"+c.settings.Name && (!c.absent || c.isReady()):
		answer(w, http.StatusOK, &c.settings)
	default:
		refuse(w, apierrors.NewNotFound(resource, c.settings.Name))
	}
}

func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	answer(w, int(status.Code), &status)
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(object) //nolint:errcheck // a client that has gone away
}

// untrusting is a server that does not know yet whom to trust, and two clients of one
// user: one comes by itself, one is sent by a front proxy.
type untrusting struct {
	*slowCluster
	*testserver.Server

	direct, proxied, anonymous *http.Client
}

func startUntrusting(t *testing.T, absent bool) *untrusting {
	t.Helper()
	users, flags, err := adopted.Flags(t)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := env.NewCA("front-proxy")
	if err != nil {
		t.Fatal(err)
	}
	u := &untrusting{slowCluster: &slowCluster{absent: absent, ready: make(chan struct{})}}
	u.settings = corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "extension-apiserver-authentication", Namespace: "kube-system", ResourceVersion: "1"},
		Data: map[string]string{
			"client-ca-file": string(users.PEM()), "requestheader-client-ca-file": string(proxy.PEM()),
			"requestheader-allowed-names":    `["front-proxy-client"]`,
			"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		},
	}
	cluster := httptest.NewServer(u.slowCluster)
	t.Cleanup(func() {
		cluster.CloseClientConnections()
		cluster.Close()
	})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := env.WriteKubeconfig(kubeconfig, &rest.Config{Host: cluster.URL}); err != nil {
		t.Fatal(err)
	}
	u.Server, err = testserver.StartExcept(t.Context(), []string{"informer-sync", "authentication-settings"}, append(flags,
		"--client-ca-file=", "--authentication-skip-lookup=false",
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Stop(); err != nil {
			t.Error(err)
		}
	})
	u.direct = withHeaders(t, u.as(t, users, adopted.Somebody), "")
	u.proxied = withHeaders(t, u.as(t, proxy, "front-proxy-client"), adopted.Somebody)
	u.anonymous = withHeaders(t, rest.AnonymousClientConfig(u.ClientConfig), "")
	return u
}

// as is the configuration of a client with a certificate.
func (u *untrusting) as(t *testing.T, ca *env.CA, user string) *rest.Config {
	t.Helper()
	pair, err := ca.Client(user, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(u.ClientConfig)
	config.CertData, config.KeyData = pair.Cert, pair.Key
	return config
}

func (u *untrusting) get(t *testing.T, client *http.Client, path string) adopted.Answer {
	t.Helper()
	return send(t, client, u.ClientConfig.Host+path, request{method: http.MethodGet})
}

// hints is how many authorities a handshake names.
func (u *untrusting) hints(t *testing.T) int {
	t.Helper()
	config, err := rest.TLSConfigFor(rest.AnonymousClientConfig(u.ClientConfig))
	if err != nil {
		t.Fatal(err)
	}
	named := -1
	config.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		named = len(info.AcceptableCAs)
		return &tls.Certificate{}, nil
	}
	connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", strings.TrimPrefix(u.ClientConfig.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	if err := connection.Close(); err != nil {
		t.Error(err)
	}
	return named
}

// checkRefusals demands that refused requests were counted.
func checkRefusals(t *testing.T, server *untrusting) {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	if err := server.Config.ExtraConfig.ServingMetrics.Register(registry.CustomRegister); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"group": "", "mode": "Untrusting"}
	got, err := testutil.GetCounterValuesFromGatherer(registry, serving.RefusedName, labels, "mode")
	if err != nil {
		t.Fatal(err)
	}
	if got["Untrusting"] < 2 {
		t.Errorf("refusals: got %v, want one by each way at least", got)
	}
}

// TestNobodyIsTakenForAnonymous starts a server while the cluster does not tell whom
// it trusts. Nobody is answered 403 for that, and the server is not ready before.
func TestNobodyIsTakenForAnonymous(t *testing.T) {
	const groups, ready = "/apis/kubeannex.io/v1alpha1/annexedgroups", "/readyz?exclude=informer-sync"
	for name, absent := range map[string]bool{"the settings are listed late": false, "there are no settings yet": true} {
		t.Run(name, func(t *testing.T) {
			server := startUntrusting(t, absent)
			clients := map[string]*http.Client{"by itself": server.direct, "by the front proxy": server.proxied}
			for way, client := range clients {
				got := server.get(t, client, groups)
				if got.Code != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "1" {
					t.Errorf("%s: got code %d, Retry-After %q, want 503 and 1: %s", way, got.Code, got.Header.Get("Retry-After"), got.Body)
				}
			}
			if got := server.hints(t); got != 0 {
				t.Errorf("a handshake names %d authorities, want none", got)
			}
			if got := server.get(t, server.anonymous, ready); got.Code != http.StatusInternalServerError || !strings.Contains(string(got.Body), "[-]authentication-settings failed") {
				t.Errorf("readiness: got code %d, want 500: %s", got.Code, got.Body)
			}
			if got := server.get(t, server.anonymous, "/livez"); got.Code != http.StatusOK {
				t.Errorf("liveness: got code %d, want 200: %s", got.Code, got.Body)
			}

			close(server.ready)
			for way, client := range clients {
				await(t, "an answer to what is sent "+way, func() bool {
					got := server.get(t, client, groups)
					if got.Code != http.StatusServiceUnavailable && got.Code != http.StatusOK {
						t.Fatalf("%s: got code %d, want 503 or 200: %s", way, got.Code, got.Body)
					}
					return got.Code == http.StatusOK
				})
			}
			if got := server.get(t, server.anonymous, ready); got.Code != http.StatusOK {
				t.Errorf("readiness: got code %d, want 200: %s", got.Code, got.Body)
			}
			await(t, "handshakes that name all authorities", func() bool { return server.hints(t) == 2 })
			checkRefusals(t, server)
			if got := server.get(t, server.anonymous, groups); got.Code != http.StatusForbidden {
				t.Errorf("who is nobody: got code %d, want 403: %s", got.Code, got.Body)
			}
		})
	}
}
