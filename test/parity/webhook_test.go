// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/test/env"
)

// startWebhook runs a validating webhook that allows everything, and returns its
// configuration for creates of gadgets in one namespace. review sees every request first.
func startWebhook(t *testing.T, namespace string, review func(*admissionv1.AdmissionRequest)) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var message admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil || message.Request == nil {
			http.Error(w, "no AdmissionReview", http.StatusBadRequest)
			return
		}
		review(message.Request)
		message.Response = &admissionv1.AdmissionResponse{UID: message.Request.UID, Allowed: true}
		message.Request = nil
		w.Header().Set("Content-Type", jsonType)
		if err := json.NewEncoder(w).Encode(message); err != nil {
			t.Errorf("answering a review: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "gadgets.parity.annex.test",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      ptr.To(server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{env.FixtureGroup, viaGroup}, APIVersions: []string{"*"}, Resources: []string{"gadgets"},
				},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// installWebhook creates a configuration in the cluster, which annex follows, until the test ends.
func installWebhook(t *testing.T, configuration *admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	client, err := kubernetes.NewForConfig(suite.hostTarget.api.config)
	if err != nil {
		t.Fatal(err)
	}
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := configurations.Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := configurations.Delete(context.WithoutCancel(t.Context()), configuration.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// storeWebhook replaces an installed configuration in the cluster's etcd. No API
// version takes the side effects "Some" any more, but what an old one has taken is
// still stored and obeyed.
func storeWebhook(t *testing.T, configuration *admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	value, err := json.Marshal(configuration)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{suite.host.Etcd.URL}, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // the write was acknowledged
	key := "/registry/validatingwebhookconfigurations/" + configuration.Name
	before, err := client.Get(t.Context(), key)
	if err != nil || before.Count != 1 {
		t.Fatalf("the cluster's etcd has no %s: %v", key, err)
	}
	if _, err := client.Put(t.Context(), key, string(value)); err != nil {
		t.Fatal(err)
	}
}

// probeName is what tests create by dry runs until a webhook is known everywhere.
const probeName = "probe"

// TestDryRunBesideSideEffects reproduces kubernetes/kubernetes 69449 and 71854: a dry run that would
// call a webhook with side effects is refused, and the webhook is not called.
func TestDryRunBesideSideEffects(t *testing.T) {
	configuration := startWebhook(t, namespaceOf(t), func(request *admissionv1.AdmissionRequest) {
		if ptr.Deref(request.DryRun, false) && request.Name != probeName {
			t.Errorf("the webhook is called for the dry run of %s", request.Name)
		}
	})
	installWebhook(t, configuration)
	configuration.Webhooks[0].SideEffects = ptr.To(admissionregistrationv1.SideEffectClassSome)
	configuration.UID = "5e1f0b52-7d0e-4b7c-9a55-0d6c6d1a7b11"
	configuration.CreationTimestamp = metav1.Now()
	storeWebhook(t, configuration)

	compare(t, func(s *session) {
		const refusal = `admission webhook "gadgets.parity.annex.test" does not support dry run`
		s.until("the webhook and its side effects to be known", func() bool {
			return s.ask(s.target.api, "probe", http.MethodPost, s.gadgets()+"?dryRun=All", gadget(probeName, `{}`)).code == http.StatusBadRequest
		})
		s.do("dry create", http.MethodPost, s.gadgets()+"?dryRun=All", gadget("dry", `{}`)).
			wantStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest, refusal)
		s.do("dry apply", http.MethodPatch, s.gadgets()+"/dry?dryRun=All&fieldManager=m", gadget("dry", `{}`), "Content-Type", applyPatch).
			wantStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest, refusal)
		s.do("create", http.MethodPost, s.gadgets(), gadget("real", `{}`)).want(http.StatusCreated)
		s.do("dry delete, which it does not see", http.MethodDelete, s.gadgets()+"/real?dryRun=All", "").want(http.StatusOK)
		s.wantNames("stored", s.gadgets(), "real")
	})
}

// TestGeneratedNameIsTaken reproduces kubernetes/kubernetes 115489: when every name that the server
// makes up is taken, it tries eight (maxNameGenerationCreateAttempts in k8s.io/apiserver
// pkg/registry/generic/registry/store.go) and then answers 409. A webhook takes each name when it is
// asked about it, before the server stores the object.
func TestGeneratedNameIsTaken(t *testing.T) {
	const attempts = 8
	targets := map[string]*target{}
	asked := map[string]*atomic.Int32{}
	for _, target := range []*target{suite.hostTarget, suite.annexTarget, suite.viaTarget} {
		targets[target.name], asked[target.name] = target, &atomic.Int32{}
	}
	namespace := namespaceOf(t)
	installWebhook(t, startWebhook(t, namespace, func(request *admissionv1.AdmissionRequest) {
		object := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(request.Object.Raw, object); err != nil {
			t.Errorf("decoding a review: %v", err)
			return
		}
		at := object.Annotations["at"]
		if at == "" {
			return // a gadget that takes a name
		}
		asked[at].Add(1)
		thief := &session{t: t, target: targets[at], namespace: namespace}
		answer, err := thief.open(t.Context(), thief.target.api, http.MethodPost, thief.gadgets(), gadget(object.Name, `{}`))
		if err != nil || answer.StatusCode != http.StatusCreated || answer.Body.Close() != nil {
			t.Errorf("taking the name %q: %v %v", object.Name, answer, err)
		}
	}))

	compare(t, func(s *session) {
		create := func(base string) *response {
			body := fmt.Sprintf(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"generateName":%q,"annotations":{"at":%q}}}`, base, s.target.name)
			return s.ask(s.target.api, "generated name that is taken", http.MethodPost, s.gadgets(), body)
		}
		s.until("the webhook to be known", func() bool { return create("probe-").code == http.StatusConflict })
		asked[s.target.name].Store(0)
		got := create("taken-")
		got.wantStatus(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		if n := asked[s.target.name].Load(); n != attempts {
			s.t.Errorf("the server tried %d names, want %d", n, attempts)
		}
		got.body = regexp.MustCompile(`taken-[a-z0-9]{5}`).ReplaceAll(got.body, []byte("taken"))
		s.keep(got)
		list := s.peek(http.MethodGet, s.gadgets()).want(http.StatusOK)
		if n := strings.Count(string(list.body), `"name":"taken-`); n != attempts {
			s.t.Errorf("%d names are taken, want %d", n, attempts)
		}
	})
}
