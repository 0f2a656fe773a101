// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package definitionguard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	annexfake "github.com/kubeannex/annex/pkg/generated/clientset/versioned/fake"
)

const group = "lab.annex.test"

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newRegistrar(services ...runtime.Object) *Registrar {
	return &Registrar{
		Client:  aggregatorfake.NewClientset(services...),
		Service: apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex", Port: ptr.To[int32](443)},
		CA:      func() []byte { return []byte("ca") }, Clock: clocktesting.NewFakePassiveClock(now),
	}
}

// local is an APIService as kube-apiserver makes it.
func local(version string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group, Labels: map[string]string{AutomanagedLabel: AutomanagedAlways}},
		Spec:       apiregistrationv1.APIServiceSpec{Group: group, Version: version, GroupPriorityMinimum: 1000, VersionPriority: 100},
	}
}

func at(version, namespace, name string, annotations map[string]string) *apiregistrationv1.APIService {
	service := local(version)
	service.Labels, service.Annotations = nil, annotations
	service.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: ptr.To[int32](443)}
	service.Spec.CABundle = []byte("ca")
	return service
}

func stored(t *testing.T, registrar *Registrar, version string) *apiregistrationv1.APIService {
	t.Helper()
	service, err := registrar.Client.ApiregistrationV1().APIServices().Get(t.Context(), version+"."+group, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return service
}

func TestAPIServiceIsClaimedAndReturned(t *testing.T) {
	cases := map[string]*apiregistrationv1.APIService{
		"none":    nil,
		"local":   local("v2"),
		"annex's": at("v2", "annex-system", "annex", nil),
		"annex's, old CA": func() *apiregistrationv1.APIService {
			s := at("v2", "annex-system", "annex", nil)
			s.Spec.CABundle = nil
			return s
		}(),
	}
	for name, service := range cases {
		t.Run(name, func(t *testing.T) {
			registrar := newRegistrar()
			if service != nil {
				registrar = newRegistrar(service)
			}
			version := schema.GroupVersion{Group: group, Version: "v2"}
			if err := registrar.Claim(t.Context(), version); err != nil {
				t.Fatal(err)
			}
			claimed := stored(t, registrar, "v2")
			want := at("v2", "annex-system", "annex", map[string]string{wantedAnnotation: "2026-01-02T03:04:05Z"})
			if diff := cmp.Diff(want.Spec, claimed.Spec); diff != "" {
				t.Errorf("claimed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.Annotations, claimed.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if _, managed := claimed.Labels[AutomanagedLabel]; managed {
				t.Error("kube-apiserver would take it back")
			}
			if err := registrar.Return(t.Context(), version); err != nil {
				t.Fatal(err)
			}
			returned := stored(t, registrar, "v2")
			if diff := cmp.Diff(local("v2").Spec, returned.Spec); diff != "" || returned.Labels[AutomanagedLabel] != AutomanagedAlways || len(returned.Annotations) > 0 {
				t.Errorf("returned with labels %v, annotations %v (-want +got):\n%s", returned.Labels, returned.Annotations, diff)
			}
		})
	}
}

func TestAPIServicesArePruned(t *testing.T) {
	registrar := newRegistrar(
		at("v1", "annex-system", "annex", nil),
		at("v2", "annex-system", "annex", nil),
		at("v3", "annex-system", "annex", map[string]string{wantedAnnotation: now.Add(-time.Minute).Format(time.RFC3339)}),
		at("v4", "annex-system", "annex", map[string]string{wantedAnnotation: now.Add(-3 * time.Minute).Format(time.RFC3339)}),
		at("v5", "default", "somebody", nil),
		local("v6"),
	)
	if err := registrar.Prune(t.Context(), group, []string{"v1"}); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]bool{"v1": true, "v2": false, "v3": true, "v4": false, "v5": true, "v6": true} {
		if got := stored(t, registrar, version) != nil; got != want {
			t.Errorf("%s is there: %t, want %t", version, got, want)
		}
	}
}

func annexedGroup(phase kubeannexv1alpha1.AnnexedGroupPhase) *kubeannexv1alpha1.AnnexedGroup {
	return &kubeannexv1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: group}, Status: kubeannexv1alpha1.AnnexedGroupStatus{Phase: phase}}
}

func TestGuardDecides(t *testing.T) {
	cases := map[string]struct {
		phase   kubeannexv1alpha1.AnnexedGroupPhase
		user    string
		group   string
		dryRun  bool
		foreign bool
		// away is why not every kube-apiserver routes to annex, known that v2 is served already.
		away  error
		known bool
		// wantCode is 0 when it is allowed, wantText is part of the refusal.
		wantCode    int32
		wantText    string
		wantClaimed bool
	}{
		"a new version":             {phase: kubeannexv1alpha1.PhaseAnnexed, wantClaimed: true},
		"a new version, releasing":  {phase: kubeannexv1alpha1.PhaseReleasing, wantClaimed: true},
		"one does not route yet":    {phase: kubeannexv1alpha1.PhaseAnnexed, away: errors.New("kube-apiserver b is away"), wantCode: http.StatusServiceUnavailable, wantText: "kube-apiserver b is away", wantClaimed: true},
		"a version that is known":   {phase: kubeannexv1alpha1.PhaseAnnexed, away: errors.New("kube-apiserver b is away"), known: true, wantClaimed: true},
		"a dry run waits for none":  {phase: kubeannexv1alpha1.PhaseAnnexed, away: errors.New("kube-apiserver b is away"), dryRun: true},
		"a dry run writes nothing":  {phase: kubeannexv1alpha1.PhaseAnnexed, dryRun: true},
		"a foreign version":         {phase: kubeannexv1alpha1.PhaseAnnexed, foreign: true, wantCode: http.StatusForbidden, wantText: "v2 cannot be served by annex like the rest of the group: APIService v2.lab.annex.test belongs to service default/somebody"},
		"a foreign version, dry":    {phase: kubeannexv1alpha1.PhaseAnnexed, foreign: true, dryRun: true, wantCode: http.StatusForbidden, wantText: "belongs to service default/somebody"},
		"while the group moves":     {phase: kubeannexv1alpha1.PhaseCuttingOver, wantCode: http.StatusTooManyRequests, wantText: "phase CuttingOver"},
		"while it moves back":       {phase: kubeannexv1alpha1.PhaseReleaseCuttingOver, wantCode: http.StatusTooManyRequests, wantText: "try again"},
		"before it moves":           {phase: kubeannexv1alpha1.PhaseCopying},
		"after it moved back":       {phase: kubeannexv1alpha1.PhaseReleaseUnfencing},
		"the controller itself":     {phase: kubeannexv1alpha1.PhaseCuttingOver, user: "annex-controller"},
		"a group that is elsewhere": {phase: kubeannexv1alpha1.PhaseAnnexed, group: "other.test"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registrar := newRegistrar()
			if tc.foreign {
				registrar = newRegistrar(at("v2", "default", "somebody", nil))
			}
			handler := &Handler{Groups: annexfake.NewClientset(annexedGroup(tc.phase)), Registrar: registrar, Username: "annex-controller"}
			handler.Routed = func(_ context.Context, version schema.GroupVersion) error {
				if version != (schema.GroupVersion{Group: group, Version: "v2"}) || stored(t, registrar, "v2") == nil {
					t.Errorf("the route of %s is waited for, want that of v2 when its APIService is there", version)
				}
				return tc.away
			}
			response := handler.Handle(t.Context(), review(t, tc.user, tc.group, tc.dryRun, tc.known))
			if response.Allowed != (tc.wantCode == 0) {
				t.Fatalf("allowed is %t: %+v", response.Allowed, response.Result)
			}
			if !response.Allowed && (response.Result.Code != tc.wantCode || !strings.Contains(response.Result.Message, tc.wantText)) {
				t.Errorf("the answer is %d %q, want %d and %q", response.Result.Code, response.Result.Message, tc.wantCode, tc.wantText)
			}
			service := stored(t, registrar, "v2")
			if claimed := service != nil && registrar.Owns(service); claimed != tc.wantClaimed {
				t.Errorf("claimed is %t, want %t", claimed, tc.wantClaimed)
			}
			if stored(t, registrar, "v3") != nil || stored(t, registrar, kubeannexv1alpha1.PrivateVersion) != nil {
				t.Error("a version that is not served, or private, was claimed")
			}
		})
	}
}

func review(t *testing.T, user, of string, dryRun, known bool) admission.Request {
	t.Helper()
	definition := apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: of,
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v2", Served: true}, {Name: "v3"}, {Name: kubeannexv1alpha1.PrivateVersion, Served: true},
		},
	}}
	if of == "" {
		definition.Spec.Group = group
	}
	content, err := json.Marshal(definition)
	if err != nil {
		t.Fatal(err)
	}
	old := content
	if !known {
		old = []byte("{}")
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: content}, OldObject: runtime.RawExtension{Raw: old}, DryRun: &dryRun,
		UserInfo: authenticationv1.UserInfo{Username: user},
	}}
}

func TestGuardIsAppliedAndRemoved(t *testing.T) {
	client := fake.NewClientset()
	guard := &Guard{Client: client, Username: "annex-controller", Webhook: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1")}}
	expressions := func() []string {
		configuration, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), ConfigurationName, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		var found []string
		for _, condition := range configuration.Webhooks[0].MatchConditions {
			found = append(found, condition.Expression)
		}
		return found
	}
	steps := []struct {
		groups []string
		want   string
	}{
		{nil, ""},
		{[]string{"b.test", "a.test"}, `object.spec.group in ["a.test", "b.test"]`},
		{[]string{"b.test"}, `object.spec.group in ["b.test"]`},
		{nil, ""},
	}
	for i, step := range steps {
		if err := guard.Apply(t.Context(), step.groups); err != nil {
			t.Fatal(err)
		}
		var want []string
		if step.want != "" {
			want = []string{step.want, `request.userInfo.username != "annex-controller"`}
		}
		if diff := cmp.Diff(want, expressions()); diff != "" {
			t.Errorf("step %d: conditions (-want +got):\n%s", i, diff)
		}
	}
}
