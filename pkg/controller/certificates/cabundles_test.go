// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// caBundles are those of everything, by name.
func (w *world) caBundles() map[string]string {
	w.Helper()
	got := map[string]string{}
	services, err := w.services.ApiregistrationV1().APIServices().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, service := range services.Items {
		got[service.Name] = string(service.Spec.CABundle)
	}
	configurations, err := w.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, configuration := range configurations.Items {
		for _, webhook := range configuration.Webhooks {
			got[configuration.Name+"/"+webhook.Name] = string(webhook.ClientConfig.CABundle)
		}
	}
	return got
}

func TestApplyWritesOurCABundlesOnly(t *testing.T) {
	w := newWorld(t)
	bundles := w.bundles()
	if err := bundles.Check(t.Context(), bundles.Host, []byte("annex"), []byte("webhooks")); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line that says what is not known", err)
	}
	if err := bundles.Apply(t.Context(), []byte("annex"), []byte("webhooks")); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"v1alpha1.kubeannex.io": "annex", "v1.lab.annex.test": "annex", "v1.local.test": "", "v1beta1.metrics.test": "theirs",
		"annex-definitions/a.kubeannex.io": "webhooks", "annex-definitions/b.kubeannex.io": "webhooks",
		"somebody/a.kubeannex.io": "theirs", "somebody/b.kubeannex.io": "theirs",
	}
	if diff := cmp.Diff(want, w.caBundles()); diff != "" {
		t.Errorf("caBundles (-want +got):\n%s", diff)
	}
	if err := bundles.Check(t.Context(), bundles.Host, []byte("annex"), []byte("webhooks")); err != nil {
		t.Error(err)
	}
	w.kube.ClearActions()
	w.services.ClearActions()
	if err := bundles.Apply(t.Context(), []byte("annex"), []byte("webhooks")); err != nil || len(w.writes()) > 0 {
		t.Errorf("got %v and writes %v, want nothing to do", err, w.writes())
	}
	// As long as nothing is known of one of them.
	if err := bundles.Apply(t.Context(), nil, []byte("others")); err != nil || len(w.writes()) > 0 {
		t.Errorf("got %v and writes %v, want nothing to do", err, w.writes())
	}
}

func TestInsecureIsMadeSecure(t *testing.T) {
	w := newWorld(t)
	services := w.services.ApiregistrationV1().APIServices()
	service := ourService("v1.lab.annex.test")
	service.Spec.InsecureSkipTLSVerify = true
	if _, err := services.Update(t.Context(), service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sync()
	got, err := services.Get(t.Context(), service.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.InsecureSkipTLSVerify || string(got.Spec.CABundle) != string(w.bundle()) {
		t.Errorf("insecure %t, caBundle %q", got.Spec.InsecureSkipTLSVerify, got.Spec.CABundle)
	}
}

// TestApplyYields has somebody else write at the same time: what they wrote stays,
// the rest is done, and the caller is told to try again.
func TestApplyYields(t *testing.T) {
	w := newWorld(t)
	w.services.PrependReactor("update", "apiservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if object := action.(clienttesting.UpdateAction).GetObject().(metav1.Object); object.GetName() != "v1.lab.annex.test" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "apiservices"}, "v1.lab.annex.test", errors.New("it changed"))
	})
	if err := w.bundles().Apply(t.Context(), []byte("annex"), []byte("webhooks")); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	got := w.caBundles()
	if got["v1.lab.annex.test"] != "" || got["v1alpha1.kubeannex.io"] != "annex" || got["annex-definitions/b.kubeannex.io"] != "webhooks" {
		t.Errorf("got %v", got)
	}
}

func TestNames(t *testing.T) {
	byService := func(namespace, name string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: name}}
	}
	byURL := func(url string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: ptr.To(url)}
	}
	cases := map[string]struct {
		ours, config admissionregistrationv1.WebhookClientConfig
		want         bool
	}{
		"the Service":           {byService("ns", "annex-controller"), byService("ns", "annex-controller"), true},
		"another name":          {byService("ns", "annex-controller"), byService("ns", "other"), false},
		"another namespace":     {byService("ns", "annex-controller"), byService("other", "annex-controller"), false},
		"a URL":                 {byService("ns", "annex-controller"), byURL("https://ns/annex-controller"), false},
		"the URL":               {byURL("https://h:1"), byURL("https://h:1/fence"), true},
		"another port":          {byURL("https://h:1"), byURL("https://h:12/fence"), false},
		"a Service, ours a URL": {byURL("https://h:1"), byService("ns", "annex-controller"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := (&CABundles{Webhook: tc.ours}).names(&tc.config); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
