// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

// setupWebhook starts a cluster that asks a webhook who may do what.
func setupWebhook(ctx context.Context, e *env.Env) error {
	server := httptest.NewTLSServer(http.HandlerFunc(arbitrate))
	e.CloseWith(closer(server.Close))
	dir, err := e.Mkdir("authorization-webhook")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "kubeconfig")
	err = env.WriteKubeconfig(file, &rest.Config{
		Host:            server.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
	})
	if err != nil {
		return err
	}
	suite.webhook, err = startWorld(ctx, e, env.HostOptions{
		Name: "webhook", AuthorizationMode: "Webhook",
		APIServerArgs: []string{"--authorization-webhook-config-file=" + file, "--authorization-webhook-version=v1"},
	}, env.AnnexOptions{})
	return err
}

// arbitrate decides what RBAC cannot: sel may list, watch and delete many with a selector only, and not may do everything but to
// what is called one. What is not about gadgets is allowed, and so is everybody else.
func arbitrate(w http.ResponseWriter, req *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	asked := review.Spec.ResourceAttributes
	if asked != nil && asked.Resource == "gadgets" {
		switch review.Spec.User {
		case "sel":
			many := slices.Contains([]string{"list", "watch", "deletecollection"}, asked.Verb)
			review.Status.Allowed = many && (asked.FieldSelector != nil || asked.LabelSelector != nil)
		case "not":
			review.Status.Allowed = asked.Name != "one"
			review.Status.Denied = !review.Status.Allowed
		}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(review) //nolint:errcheck // a client that has gone away
}

// selective are questions about requests with selectors.
func selective() map[string]request {
	asked := questions()
	for name, query := range map[string]string{
		"list by a field":              "?fieldSelector=metadata.name%3Dtwo",
		"list by two labels":           "?labelSelector=team%3Da,size",
		"watch by a label":             "?watch=1&resourceVersion=0&labelSelector=team%3Da",
		"list by what cannot be read":  "?fieldSelector=a%3D%3D%3Db%3D",
		"list by a label that is none": "?labelSelector=%3D%3D",
	} {
		asked[name] = request{method: http.MethodGet, path: gadgets(rightsNamespace) + query, endless: name == "watch by a label"}
	}
	asked["delete by a label"] = request{method: http.MethodDelete, path: gadgets(rightsNamespace) + "?dryRun=All&labelSelector=team%3Da"}
	return asked
}

// TestAuthorizationByWebhook asks where a webhook of the cluster decides, which may look at names and selectors.
func TestAuthorizationByWebhook(t *testing.T) {
	w := suite.webhook
	seedRights(t, w)
	for user, allowed := range map[string]int{"ann": 26, "sel": 9, "not": 20} {
		t.Run(user, func(t *testing.T) {
			if got := compareQuestions(t, w, w.user(t, user), selective()); got != allowed {
				t.Errorf("%d questions are allowed, want %d", got, allowed)
			}
		})
	}
}
