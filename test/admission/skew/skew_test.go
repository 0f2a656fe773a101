// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/env"
)

var disabledMetric = regexp.MustCompile(`(?m)^annex_disabled_plugins\{.*$`)

// TestBareHost asks an annex that started although its cluster lacks two APIs.
func TestBareHost(t *testing.T) {
	direct := suite.bare.configOf(t, false)
	metrics := mustAsk(t, direct, http.MethodGet, "/metrics", "")
	want := []string{
		`annex_disabled_plugins{plugin="MutatingAdmissionPolicy",reason="MissingAPI"} 1`,
		`annex_disabled_plugins{plugin="PriorityAndFairness",reason="MissingAPI"} 1`,
	}
	if diff := cmp.Diff(want, disabledMetric.FindAllString(metrics.body, -1)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	var lines []string
	for line := range strings.Lines(suite.bare.annex.Replicas[0].Log()) {
		if strings.Contains(line, "Switched off") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 2 {
		t.Errorf("the log says so in %d lines, want one for each plug-in:\n%s", len(lines), strings.Join(lines, ""))
	}
	if got := mustAsk(t, direct, http.MethodGet, "/readyz?verbose", ""); got.code != http.StatusOK {
		t.Errorf("readyz: %v", got)
	}
	checkReplica(t, direct, "MutatingAdmissionPolicy", "PriorityAndFairness")
	for name, atHost := range map[string]bool{"direct": false, "aggregated": true} {
		got := mustAsk(t, suite.bare.configOf(t, atHost), http.MethodPost, gadgets, gadget("bare-"+name))
		if got.code != http.StatusCreated {
			t.Errorf("%s: create: %v", name, got)
		}
		if schemas := got.header.Values("X-Kubernetes-Pf-Flowschema-Uid"); len(schemas) > 0 {
			t.Errorf("%s: a flow schema classified the request: %q", name, schemas)
		}
	}
}

// checkReplica asks for what annex-controller learns of disabled plug-ins.
func checkReplica(t *testing.T, direct *rest.Config, want ...string) {
	t.Helper()
	const groups = "/apis/kubeannex.io/v1alpha1/annexedgroups"
	created := mustAsk(t, direct, http.MethodPost, groups, `{"apiVersion":"kubeannex.io/v1alpha1","kind":"AnnexedGroup","metadata":{"name":"skew.annex.test"}}`)
	if created.code != http.StatusCreated {
		t.Fatalf("creating an AnnexedGroup: %v", created)
	}
	var status kubeannexv1alpha1.ReplicaStatus
	if err := json.Unmarshal([]byte(mustAsk(t, direct, http.MethodGet, groups+"/skew.annex.test/replica", "").body), &status); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, status.DisabledPlugins); diff != "" {
		t.Errorf("disabled plug-ins (-want +got):\n%s", diff)
	}
}

// TestLimitOfABareHost fills the one place that the limit of writes in flight leaves.
func TestLimitOfABareHost(t *testing.T) {
	grantWriter(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	installHold(t, entered, leave)
	writer, err := suite.bare.annex.BalancedConfig("writer")
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan answer, 1)
	go func() {
		got, err := ask(t.Context(), writer, http.MethodPost, gadgets, gadget("held"))
		if err != nil {
			got.body = err.Error()
		}
		first <- got
	}()
	<-entered
	got := mustAsk(t, writer, http.MethodPost, gadgets, gadget("refused"))
	if got.code != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("a second write: %v with headers %v, want 429 with Retry-After", got, got.header)
	}
	if got := mustAsk(t, writer, http.MethodGet, gadgets, ""); got.code != http.StatusOK {
		t.Errorf("a read: %v", got)
	}
	close(leave)
	if got := <-first; got.code != http.StatusCreated {
		t.Errorf("the first write: %v", got)
	}
}

func grantWriter(t *testing.T) {
	t.Helper()
	meta, create := metav1.ObjectMeta{Name: "writer"}, metav1.CreateOptions{}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{env.FixtureGroup}, Resources: []string{"gadgets"}, Verbs: []string{"create", "list"},
	}}}
	if _, err := suite.bare.kube.RbacV1().ClusterRoles().Create(t.Context(), role, create); err != nil {
		t.Fatal(err)
	}
	_, err := suite.bare.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "writer"}},
	}, create)
	if err != nil {
		t.Fatal(err)
	}
}

// installHold makes annex call a webhook for the gadget "held", and waits until it does. The
// webhook answers when leave is closed, and notes in the gadget "probe" that it is called.
func installHold(t *testing.T, entered chan<- struct{}, leave <-chan struct{}) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no AdmissionReview", http.StatusBadRequest)
			return
		}
		if review.Request.Name == "held" {
			close(entered)
			<-leave
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: review.Request.Name != "probe"}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Errorf("answering a review: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	_, err := suite.bare.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hold"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hold.annex.test",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      ptr.To(server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{env.FixtureGroup}, APIVersions: []string{"*"}, Resources: []string{"gadgets"}},
			}},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the webhook to be called", suite.bare.configOf(t, false), http.MethodPost, gadgets+"?dryRun=All", gadget("probe"), func(a answer) bool {
		return a.code == http.StatusBadRequest || a.code == http.StatusForbidden
	})
}

// TestBetaPolicies applies a mutating policy of the version that an older cluster has.
func TestBetaPolicies(t *testing.T) {
	if got := mustAsk(t, suite.beta.configOf(t, false), http.MethodGet, "/metrics", ""); disabledMetric.MatchString(got.body) {
		t.Errorf("disabled: %s", disabledMetric.FindAllString(got.body, -1))
	}
	client, create := suite.beta.kube.AdmissionregistrationV1beta1(), metav1.CreateOptions{}
	policy := &admissionregistrationv1beta1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "note"},
		Spec: admissionregistrationv1beta1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionregistrationv1beta1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1beta1.MatchResources{ResourceRules: []admissionregistrationv1beta1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1beta1.RuleWithOperations{
					Operations: []admissionregistrationv1beta1.OperationType{admissionregistrationv1beta1.OperationAll},
					Rule:       admissionregistrationv1beta1.Rule{APIGroups: []string{env.FixtureGroup}, APIVersions: []string{"*"}, Resources: []string{"gadgets"}},
				},
			}}},
			Mutations: []admissionregistrationv1beta1.Mutation{{
				PatchType: admissionregistrationv1beta1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1beta1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/spec/note", value: "by policy"}]`},
			}},
		},
	}
	if _, err := client.MutatingAdmissionPolicies().Create(t.Context(), policy, create); err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1beta1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "note"},
		Spec:       admissionregistrationv1beta1.MutatingAdmissionPolicyBindingSpec{PolicyName: "note"},
	}
	if _, err := client.MutatingAdmissionPolicyBindings().Create(t.Context(), binding, create); err != nil {
		t.Fatal(err)
	}
	until(t, "the policy to be applied", suite.beta.configOf(t, true), http.MethodPost, gadgets+"?dryRun=All", gadget("probe"), noted)
	startWithoutHost(t)
}

func noted(a answer) bool {
	return a.code == http.StatusCreated && strings.Contains(a.body, `"note":"by policy"`)
}

// startWithoutHost starts annex while its cluster is away. That does not switch anything off:
// writes wait, and none is let past the policy when the cluster is back.
func startWithoutHost(t *testing.T) {
	t.Helper()
	annex, host, direct := suite.beta.annex.Replicas[0], suite.beta.host.APIServers[0], suite.beta.configOf(t, false)
	before := len(annex.Log())
	if err := annex.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := host.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := annex.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "annex to live", direct, http.MethodGet, "/livez", "", func(a answer) bool { return a.code == http.StatusOK })
	got := until(t, "the answer of a waiting server", direct, http.MethodPost, gadgets, gadget("early"), func(answer) bool { return true })
	if got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("a write without the cluster: %v with headers %v, want 503 with Retry-After", got, got.header)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	var codes []int
	until(t, "a write to succeed", direct, http.MethodPost, gadgets, gadget("late"), func(a answer) bool {
		codes = append(codes, a.code)
		if a.code == http.StatusCreated && !noted(a) {
			t.Errorf("a write was let past the policy: %v", a)
		}
		return a.code == http.StatusCreated
	})
	if codes = slices.Compact(codes); codes[0] != http.StatusServiceUnavailable || len(codes) != 2 {
		t.Errorf("the server answered %v while the cluster came back, want 503 and then 201", codes)
	}
	if log := annex.Log()[before:]; strings.Contains(log, "Switched off") {
		t.Error("a cluster that was away counts as one that lacks APIs")
	}
}
