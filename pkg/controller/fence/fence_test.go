// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

const group = "lab.annex.test"

func fences() *Fences {
	return &Fences{
		Client:    fake.NewClientset(),
		Webhook:   admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:9443"), CABundle: []byte("authority")},
		Namespace: "annex-system",
	}
}

func TestFenceGoesUpOnceAndDown(t *testing.T) {
	f, begin := fences(), time.Unix(100, 123456789)
	first, err := f.Raise(t.Context(), group, begin)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.Raise(t.Context(), group, begin.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if !first.Since.Equal(begin) || !again.Since.Equal(begin) {
		t.Errorf("up since %s and %s, want both times %s", first.Since, again.Since, begin)
	}
	all, err := f.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Group != group {
		t.Errorf("got %v, %v, want the fence of %s", all, err, group)
	}
	for range 2 {
		if err := f.Lower(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := f.Get(t.Context(), group); got != nil || err != nil {
		t.Errorf("got %v, %v, want no fence", got, err)
	}
}

func TestConfiguration(t *testing.T) {
	configuration := fences().configuration(group, time.Unix(0, 0))
	if len(configuration.Webhooks) != 2 {
		t.Fatalf("%d webhooks, want that of the group and that of the probe", len(configuration.Webhooks))
	}
	for _, webhook := range configuration.Webhooks {
		if *webhook.FailurePolicy != admissionregistrationv1.Fail || *webhook.SideEffects != admissionregistrationv1.SideEffectClassNone {
			t.Errorf("%s must fail closed and be called for dry runs", webhook.Name)
		}
		if got := *webhook.ClientConfig.URL; got != "https://127.0.0.1:9443/fence" {
			t.Errorf("%s is called at %s", webhook.Name, got)
		}
	}
	held := configuration.Webhooks[0].Rules[0]
	want := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"*/*"}, Scope: ptr.To(admissionregistrationv1.AllScopes),
		},
	}
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("rule (-want +got):\n%s", diff)
	}
}

func TestClientConfigByService(t *testing.T) {
	base := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex-controller"}}
	if got := ClientConfig(base, Path); *got.Service.Path != Path {
		t.Errorf("path %s, want %s", *got.Service.Path, Path)
	}
	if base.Service.Path != nil {
		t.Error("the argument was changed")
	}
}

func TestHandler(t *testing.T) {
	gadgets := metav1.GroupVersionResource{Group: group, Version: "v1", Resource: "gadgets"}
	configMaps := metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	cases := map[string]struct {
		request     admissionv1.AdmissionRequest
		wantAllowed bool
	}{
		"somebody writes":       {request: admissionv1.AdmissionRequest{Resource: gadgets, UserInfo: authenticationv1.UserInfo{Username: "jane"}}},
		"the controller writes": {request: admissionv1.AdmissionRequest{Resource: gadgets, UserInfo: authenticationv1.UserInfo{Username: "controller"}}, wantAllowed: true},
		"the probe is refused even to the controller": {request: admissionv1.AdmissionRequest{
			Resource: configMaps, Name: probeName(group), UserInfo: authenticationv1.UserInfo{Username: "controller"},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.request.UID = "7"
			answer := ask(t, &admissionv1.AdmissionReview{Request: &tc.request})
			if answer.UID != "7" || answer.Allowed != tc.wantAllowed {
				t.Fatalf("got %+v, want allowed %t", answer, tc.wantAllowed)
			}
			if tc.wantAllowed {
				return
			}
			err := webhookerrors.ToStatusErr("fence.kubeannex.io", answer.Result)
			if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 1 || !isAnswer(err, group) {
				t.Errorf("%v: a client waits %d seconds, want 1, in words that are recognised", err, seconds)
			}
			if isAnswer(err, "other.annex.test") {
				t.Errorf("%v is taken for the answer of another fence", err)
			}
		})
	}
}

func TestHandlerRefusesGarbage(t *testing.T) {
	for name, body := range map[string]string{"no JSON": "{", "no request": "{}"} {
		t.Run(name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			(&Handler{}).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, bytes.NewBufferString(body)))
			if recorder.Code != http.StatusBadRequest {
				t.Errorf("got %d, want %d", recorder.Code, http.StatusBadRequest)
			}
		})
	}
}

func ask(t *testing.T, review *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	handler := &Handler{Username: "controller"}
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, bytes.NewReader(body)))
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Response
}
