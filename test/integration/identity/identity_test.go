// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity shows who a standalone server believes and what it allows them.
package identity

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
)

// review is the service that both webhooks ask: the token "ann-token" is ann's, and the group "readers" may list.
func review(w http.ResponseWriter, request *http.Request) {
	var answer any
	switch request.URL.Path {
	case "/authenticate":
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if review.Spec.Token == "ann-token" {
			review.Status = authenticationv1.TokenReviewStatus{
				Authenticated: true,
				User:          authenticationv1.UserInfo{Username: "ann", Groups: []string{"readers"}},
			}
		}
		answer = review
	case "/authorize":
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		attributes := review.Spec.ResourceAttributes
		review.Status.Allowed = attributes != nil && attributes.Verb == "list" && slices.Contains(review.Spec.Groups, "readers")
		answer = review
	default:
		http.NotFound(w, request)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// webhookKubeconfig writes the file that names the service.
func webhookKubeconfig(t *testing.T, service *httptest.Server, path string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["webhook"] = &clientcmdapi.Cluster{
		Server:                   service.URL + path,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}),
	}
	config.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook"}
	config.CurrentContext = "webhook"
	file := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// startServer returns the administrator's client configuration.
func startServer(t *testing.T, flags ...string) *rest.Config {
	t.Helper()
	server := testserver.StartStandalone(t, flags...)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(server.Options.Standalone.RootDir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// outcome is what a user meets.
type outcome string

const (
	allowed      outcome = "allowed"
	forbidden    outcome = "forbidden"
	unauthorized outcome = "unauthorized"
)

func outcomeOf(t *testing.T, err error) outcome {
	t.Helper()
	switch {
	case err == nil:
		return allowed
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsUnauthorized(err):
		return unauthorized
	}
	t.Fatalf("unexpected answer: %v", err)
	return ""
}

// tokens is a file of static tokens: one administrator, one reader, one with neither group.
const tokens = `root-token,root,1,"system:masters"
ben-token,ben,2,"readers"
cat-token,cat,3
`

func TestStandaloneIdentity(t *testing.T) {
	service := httptest.NewTLSServer(http.HandlerFunc(review))
	t.Cleanup(service.Close)
	tokenFile := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokenFile, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}

	type user struct {
		token                string
		wantList, wantCreate outcome
	}
	tests := map[string]struct {
		flags []string
		users map[string]user
	}{
		"without webhooks, only administrators may do anything": {
			flags: []string{"--token-auth-file=" + tokenFile},
			users: map[string]user{
				"administrator by token": {token: "root-token", wantList: allowed, wantCreate: allowed},
				"a reader":               {token: "ben-token", wantList: forbidden, wantCreate: forbidden},
				"a stranger":             {token: "ann-token", wantList: unauthorized, wantCreate: unauthorized},
				"nobody in particular":   {wantList: forbidden, wantCreate: forbidden},
			},
		},
		"with webhooks, they decide about everyone else": {
			flags: []string{
				"--token-auth-file=" + tokenFile,
				"--authentication-token-webhook-config-file=" + webhookKubeconfig(t, service, "/authenticate"),
				"--authorization-webhook-config-file=" + webhookKubeconfig(t, service, "/authorize"),
			},
			users: map[string]user{
				"administrator by token":      {token: "root-token", wantList: allowed, wantCreate: allowed},
				"a reader by static token":    {token: "ben-token", wantList: allowed, wantCreate: forbidden},
				"a reader by reviewed token":  {token: "ann-token", wantList: allowed, wantCreate: forbidden},
				"a user without a group":      {token: "cat-token", wantList: forbidden, wantCreate: forbidden},
				"a token that nobody knows":   {token: "x", wantList: unauthorized, wantCreate: unauthorized},
				"nobody in particular, again": {wantList: forbidden, wantCreate: forbidden},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			admin := startServer(t, tc.flags...)
			for userName, u := range tc.users {
				t.Run(userName, func(t *testing.T) {
					config := rest.AnonymousClientConfig(admin)
					config.BearerToken = u.token
					client, err := versioned.NewForConfig(config)
					if err != nil {
						t.Fatal(err)
					}
					groups := client.KubeannexV1alpha1().AnnexedGroups()
					_, err = groups.List(t.Context(), metav1.ListOptions{})
					if got := outcomeOf(t, err); got != u.wantList {
						t.Errorf("list: got %s, want %s", got, u.wantList)
					}
					_, err = groups.Create(t.Context(), annexedGroup(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					if got := outcomeOf(t, err); got != u.wantCreate {
						t.Errorf("create: got %s, want %s", got, u.wantCreate)
					}
				})
			}
		})
	}
}

func annexedGroup() *kubeannexv1alpha1.AnnexedGroup {
	return &kubeannexv1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: "lab.annex.test"}}
}
