// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package ownerhold

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// held lists who is kept from what, by "group/resource".
func held(t *testing.T, holds *Holds, group string) map[string][]string {
	t.Helper()
	configuration, err := holds.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), Name(group), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	found := map[string][]string{}
	for _, webhook := range configuration.Webhooks {
		if *webhook.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("%s lets pass while the controller is away", webhook.Name)
		}
		for _, rule := range webhook.Rules {
			condition := webhook.MatchConditions[0].Expression
			found[condition] = append(found[condition], rule.APIGroups[0]+"/"+rule.Resources[0])
		}
	}
	return found
}

func TestHoldIsRaisedWidenedAndLowered(t *testing.T) {
	const (
		collectorOnly = `request.userInfo.username == "system:serviceaccount:kube-system:generic-garbage-collector"`
		everybody     = `request.userInfo.username == "system:kube-controller-manager"`
		probe         = `object.metadata.name == "annex-hold-probe-lab.annex.test"`
	)
	holds := &Holds{
		Client: fake.NewClientset(), Namespace: "annex-system",
		Webhook: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1")},
	}
	steps := []struct {
		dependents []schema.GroupResource
		want       map[string][]string
	}{
		{nil, map[string][]string{collectorOnly: {"*/*/*"}, probe: {"/configmaps"}}},
		{
			[]schema.GroupResource{{Resource: "pods"}, {Group: "apps", Resource: "deployments"}},
			map[string][]string{collectorOnly: {"*/*/*"}, everybody: {"/pods", "apps/deployments"}, probe: {"/configmaps"}},
		},
	}
	for i, step := range steps {
		if err := holds.Raise(t.Context(), "lab.annex.test", step.dependents); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, held(t, holds, "lab.annex.test")); diff != "" {
			t.Errorf("step %d: rules (-want +got):\n%s", i, diff)
		}
	}
	for range 2 {
		if err := holds.Lower(t.Context(), "lab.annex.test"); err != nil {
			t.Fatal(err)
		}
	}
	if left := held(t, holds, "lab.annex.test"); left != nil {
		t.Errorf("after lowering: %v", left)
	}
}

func TestRefusalIsNotRetriedByClients(t *testing.T) {
	response := Handler{}.Handle(t.Context(), admission.Request{})
	if response.Allowed || response.Result.Code != http.StatusForbidden || response.Result.Details != nil {
		t.Errorf("the answer is %+v, want 403 without a pause", response)
	}
}
