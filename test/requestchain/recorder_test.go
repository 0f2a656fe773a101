// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/test/env"
)

// recorder is a validating webhook that notes who creates gadgets.
type recorder struct {
	server *httptest.Server
	serial atomic.Int64

	lock  sync.Mutex
	users map[string]authenticationv1.UserInfo
}

// closer makes a function an io.Closer.
type closer func()

func (c closer) Close() error {
	c()
	return nil
}

func startRecorder(e *env.Env) *recorder {
	r := &recorder{users: map[string]authenticationv1.UserInfo{}}
	r.server = httptest.NewTLSServer(http.HandlerFunc(r.review))
	e.CloseWith(closer(r.server.Close))
	return r
}

func (r *recorder) review(w http.ResponseWriter, req *http.Request) {
	var message admissionv1.AdmissionReview
	if err := json.NewDecoder(req.Body).Decode(&message); err != nil || message.Request == nil {
		http.Error(w, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	r.lock.Lock()
	r.users[message.Request.Name] = message.Request.UserInfo
	r.lock.Unlock()
	message.Response = &admissionv1.AdmissionResponse{UID: message.Request.UID, Allowed: true}
	message.Request = nil
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(message) //nolint:errcheck // a client that has gone away
}

// install makes the cluster, and so annex, ask the webhook about new gadgets.
func (r *recorder) install(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "recorder"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "recorder.annex.test",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      ptr.To(r.server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{env.FixtureGroup, judgeGroup}, APIVersions: []string{"*"}, Resources: []string{"gadgets"},
				},
			}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	return err
}

// seen creates a gadget without keeping it, and returns whom the webhook was told about.
// It returns false when the webhook was not asked.
func (r *recorder) seen(t *testing.T, by way, user who) (authenticationv1.UserInfo, answer, bool) {
	t.Helper()
	name := fmt.Sprintf("seen-%d", r.serial.Add(1))
	got := by.ask(t, user, request{method: http.MethodPost, path: gadgets(identityNamespace) + "?dryRun=All", body: gadget(name, "{}")})
	r.lock.Lock()
	defer r.lock.Unlock()
	info, ok := r.users[name]
	return info, got, ok
}

// awaitRecorder waits until the webhook is asked by every way.
func awaitRecorder(t *testing.T) {
	t.Helper()
	admin := suite.rbac.adminUser(t)
	for _, by := range suite.rbac.ways() {
		await(t, "the webhook to be asked by "+by.name, func(context.Context) bool {
			_, _, asked := suite.recorder.seen(t, by, admin)
			return asked
		})
	}
}
