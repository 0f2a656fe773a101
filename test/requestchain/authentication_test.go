// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/test/env"
)

// frontProxy is the common name that the cluster allows.
const frontProxy = "front-proxy-client"

// asBen are the headers by which a front proxy says that a user is ben.
func asBen() map[string]string {
	return map[string]string{"X-Remote-User": "ben", "X-Remote-Group": "system:authenticated"}
}

// token returns a token of a service account of its own.
func (w *world) token(t *testing.T, name string) string {
	t.Helper()
	ctx := testContext(t)
	accounts := w.admin.CoreV1().ServiceAccounts(identityNamespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	request, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// credential is what a client may prove itself with.
type credential struct {
	who
	// want is the code for a creation where every known user may create, and wantName who it is then.
	want     int
	wantName string
}

// credentials are those that depend on the cluster's authorities, which differ between worlds.
func (w *world) credentials(t *testing.T) map[string]credential {
	t.Helper()
	foreign, err := env.NewCA("annex-test-ca") // the name of the cluster's own
	if err != nil {
		t.Fatal(err)
	}
	clients, proxies := w.host.ClientCA(), w.host.FrontProxyCA()
	token := w.token(t, "robot")
	robot := "system:serviceaccount:" + identityNamespace + ":robot"
	const created, refused = http.StatusCreated, http.StatusUnauthorized
	return map[string]credential{
		"the front proxy":                             {certified(t, proxies, frontProxy).with(asBen()), created, "ben"},
		"a front proxy that is not allowed":           {certified(t, proxies, "another-proxy").with(asBen()), refused, ""},
		"a front proxy of another authority":          {certified(t, foreign, frontProxy).with(asBen()), refused, ""},
		"a front proxy with an expired certificate":   {expired(t, proxies, frontProxy).with(asBen()), refused, ""},
		"a front proxy that names nobody":             {certified(t, proxies, frontProxy), refused, ""},
		"a front proxy's name by a client's":          {certified(t, clients, frontProxy).with(asBen()), created, frontProxy},
		"a user":                                      {certified(t, clients, "cid", "readers"), created, "cid"},
		"a user who says to be another":               {certified(t, clients, "cid").with(asBen()), created, "cid"},
		"a user with a certificate of no authority":   {certified(t, foreign, "cid"), refused, ""},
		"a user with an expired certificate":          {expired(t, clients, "cid"), refused, ""},
		"a user who is also of the privileged":        {certified(t, clients, "root", "system:masters"), created, "root"},
		"a token":                                     {who{token: token}, created, robot},
		"a token of somebody who says to be another":  {who{token: token, headers: asBen()}, created, robot},
		"a token that nobody knows":                   {who{token: "not-a-token"}, refused, ""},
		"a token that is cut off":                     {who{token: token[:len(token)-4]}, refused, ""},
		"a token beside a foreign certificate":        {who{pair: certified(t, foreign, "cid").pair, token: token}, created, robot},
		"a wrong token beside a good certificate":     {who{pair: certified(t, clients, "cid").pair, token: "not-a-token"}, created, "cid"},
		"a password":                                  {who{headers: map[string]string{"Authorization": "Basic YW5uOmFubg=="}}, 0, ""},
		"nothing but the headers of a front proxy":    {who{headers: asBen()}, 0, ""},
		"nothing but privileges":                      {who{headers: map[string]string{"X-Remote-User": "x", "X-Remote-Group": "system:masters"}}, 0, ""},
		"nothing but an impersonation":                {who{headers: map[string]string{"Impersonate-User": "ben"}}, -1, ""},
		"nothing":                                     {who{}, 0, ""},
		"an empty token":                              {who{headers: map[string]string{"Authorization": "Bearer "}}, 0, ""},
		"a header of a front proxy that is not asked": {certified(t, proxies, frontProxy).with(map[string]string{"X-Forwarded-User": "ben"}), refused, ""},
	}
}

func expired(t *testing.T, ca *env.CA, name string) who {
	t.Helper()
	pair, err := ca.ExpiredClient(name)
	if err != nil {
		t.Fatal(err)
	}
	return who{pair: pair}
}

// TestAuthentication shows the same credentials to kube-apiserver and to annex, and through the one to the other.
func TestAuthentication(t *testing.T) {
	awaitRecorder(t)
	w := suite.rbac
	for name, tc := range w.credentials(t) {
		t.Run(name, func(t *testing.T) {
			want, wantName := tc.want, tc.wantName
			switch want {
			case 0: // without credentials
				want, wantName = http.StatusCreated, "system:anonymous"
			case -1:
				want = http.StatusForbidden
			}
			var judged string
			for _, by := range w.ways() {
				info, got, _ := suite.recorder.seen(t, by, tc.who)
				if by.name == "judge" {
					judged = got.status()
				}
				if got.code != want || got.status() != judged {
					t.Errorf("%s: got %s, want %d as kube-apiserver: %s", by.name, got.status(), want, judged)
				}
				if info.Username != wantName {
					t.Errorf("%s: the user is %q, want %q", by.name, info.Username, wantName)
				}
			}
		})
	}
}

// TestAnonymousOnlyWhereConfigured shows no credentials to servers that are told to take nobody for anonymous. Only
// health checks are answered by annex: a kubelet has no credentials for it.
func TestAnonymousOnlyWhereConfigured(t *testing.T) {
	w := suite.abac
	for name, tc := range w.credentials(t) {
		if tc.want > 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, by := range w.ways() {
				for _, path := range []string{gadgets(rightsNamespace), "/apis/GROUP/v1", "/apis", "/openapi/v3", "/metrics", "/version", "/", "/readyz/ping", "/debug/pprof/"} {
					if got := by.ask(t, tc.who, request{method: http.MethodGet, path: path}); got.code != http.StatusUnauthorized {
						t.Errorf("%s, %s: got %s, want 401", by.name, path, got.status())
					}
				}
			}
		})
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if got := w.direct().ask(t, who{}, request{method: http.MethodGet, path: path + "?verbose=1"}); got.code != http.StatusOK {
			t.Errorf("%s: got %d, want 200: %s", path, got.code, got.body)
		}
	}
}
