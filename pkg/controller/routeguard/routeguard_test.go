// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routeguard

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/controller/definitionguard"
)

const (
	group      = "lab.annex.test"
	controller = "system:serviceaccount:annex-system:annex-controller"

	deleted = "APIService v1.lab.annex.test sends the group lab.annex.test to annex, it cannot be deleted, clients would read old copies in the cluster" + rest
	changed = "APIService v1.lab.annex.test sends the group lab.annex.test to annex, its service, caBundle, insecureSkipTLSVerify and label kube-aggregator.kubernetes.io/automanaged cannot be changed" + rest
	rest    = ": `kubectl annex release lab.annex.test` gives the group back to the cluster (when annex is lost, stop annex-controller and delete the ValidatingAdmissionPolicyBinding annex-routes, which lifts this guard)"
)

func newGuard(objects ...runtime.Object) (*Guard, *fake.Clientset) {
	client := fake.NewClientset(objects...)
	return &Guard{
		Client:   client,
		Service:  apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex", Port: ptr.To[int32](443)},
		Username: controller,
	}, client
}

// writes are the verbs and resources of all requests that change something.
func writes(client *fake.Clientset) []string {
	var found []string
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			found = append(found, action.GetVerb()+" "+action.GetResource().Resource)
		}
	}
	client.ClearActions()
	return found
}

func TestGuardIsEnsuredAndRemoved(t *testing.T) {
	const policies, bindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
	guard, client := newGuard()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
		want []string
	}{
		{"nothing to remove", guard.Remove, []string{"delete " + bindings, "delete " + policies}},
		{"nothing there", guard.Ensure, []string{"create " + policies, "create " + bindings}},
		{"all there", guard.Ensure, nil},
		{"the controller has another name", func(ctx context.Context) error {
			guard.Username = "somebody"
			return guard.Ensure(ctx)
		}, []string{"update " + policies}},
		{"somebody made it audit only", func(ctx context.Context) error {
			weak := binding()
			weak.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
			if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Update(ctx, weak, metav1.UpdateOptions{}); err != nil {
				return err
			}
			client.ClearActions()
			return guard.Ensure(ctx)
		}, []string{"update " + bindings}},
		{"somebody lifted it", func(ctx context.Context) error {
			err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, Name, metav1.DeleteOptions{})
			client.ClearActions()
			return errors.Join(err, guard.Ensure(ctx))
		}, []string{"create " + bindings}},
		// The policy alone refuses nothing, the binding alone makes kube-apiserver complain.
		{"the last group left", guard.Remove, []string{"delete " + bindings, "delete " + policies}},
	} {
		if err := step.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, writes(client)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// TestGuardKeepsLabels changes the spec only: the objects may carry what users put there.
func TestGuardKeepsLabels(t *testing.T) {
	labelled := (&Guard{Username: "before"}).policy()
	labelled.Labels = map[string]string{"team": "a"}
	guard, client := newGuard(labelled)
	if err := guard.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(guard.policy().Spec, got.Spec); diff != "" || got.Labels["team"] != "a" {
		t.Errorf("labels %v (-want +got):\n%s", got.Labels, diff)
	}
}

func TestGuardTriesConflictsAgain(t *testing.T) {
	guard, client := newGuard((&Guard{Username: "before"}).policy())
	tries := 0
	client.PrependReactor("update", "validatingadmissionpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
		if tries++; tries == 1 {
			return true, nil, apierrors.NewConflict(admissionregistrationv1.Resource("validatingadmissionpolicies"), Name, errors.New("changed"))
		}
		return false, nil, nil
	})
	if err := guard.Ensure(t.Context()); err != nil || tries != 2 {
		t.Errorf("after %d updates: %v, want two and no error", tries, err)
	}
}

// TestGuardNeedsTheControllersName does not lock the controller out.
func TestGuardNeedsTheControllersName(t *testing.T) {
	guard, client := newGuard()
	guard.Username = ""
	err := guard.Ensure(t.Context())
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line", err)
	}
	if diff := cmp.Diff([]string(nil), writes(client)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestGuardNamesWhatFails(t *testing.T) {
	for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		guard, client := newGuard()
		client.PrependReactor("*", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(admissionregistrationv1.Resource(resource), Name, errors.New("no rights"))
		})
		for name, do := range map[string]func(context.Context) error{"ensure": guard.Ensure, "remove": guard.Remove} {
			if err := do(t.Context()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), Name+": ") {
				t.Errorf("%s, %s: %v, want Forbidden with the name", name, resource, err)
			}
		}
	}
}

// routed is an APIService as the controller makes it.
func routed() *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 100, CABundle: []byte("ca"),
			Service: &apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex", Port: ptr.To[int32](443)},
		},
	}
}

// local turns an APIService into one as kube-apiserver makes it.
func local(service *apiregistrationv1.APIService) {
	service.Labels = map[string]string{definitionguard.AutomanagedLabel: definitionguard.AutomanagedAlways}
	service.Spec.Service, service.Spec.CABundle = nil, nil
}

func TestPolicyDecides(t *testing.T) {
	cases := map[string]struct {
		// old changes the APIService as it was, update that in the request; nil deletes it.
		old, update func(*apiregistrationv1.APIService)
		user        string
		// want is empty when it is allowed.
		want string
	}{
		"deleted":                           {want: deleted},
		"deleted by the controller":         {user: controller},
		"deleted, but its group is annex's": {old: func(s *apiregistrationv1.APIService) { s.Spec.Group = "kubeannex.io" }},
		"deleted, but a local one":          {old: local},
		"deleted, but of another service":   {old: func(s *apiregistrationv1.APIService) { s.Spec.Service.Name = "annex2" }},
		"deleted, but of another namespace": {old: func(s *apiregistrationv1.APIService) { s.Spec.Service.Namespace = "default" }},
		"deleted, of another port of annex": {old: func(s *apiregistrationv1.APIService) { s.Spec.Service.Port = ptr.To[int32](8443) }, want: deleted},
		"made local":                        {update: local, want: changed},
		"made local by the controller":      {update: local, user: controller},
		"made local by kube-apiserver":      {update: local, user: user.APIServerUser, want: changed},
		"without a service":                 {update: func(s *apiregistrationv1.APIService) { s.Spec.Service = nil }, want: changed},
		"another service":                   {update: func(s *apiregistrationv1.APIService) { s.Spec.Service.Name = "annex2" }, want: changed},
		"another port":                      {update: func(s *apiregistrationv1.APIService) { s.Spec.Service.Port = ptr.To[int32](8443) }, want: changed},
		"another authority":                 {update: func(s *apiregistrationv1.APIService) { s.Spec.CABundle = []byte("other") }, want: changed},
		"no authority":                      {update: func(s *apiregistrationv1.APIService) { s.Spec.CABundle = nil }, want: changed},
		"a first authority":                 {old: func(s *apiregistrationv1.APIService) { s.Spec.CABundle = nil }, update: func(s *apiregistrationv1.APIService) { s.Spec.CABundle = []byte("ca") }, want: changed},
		"unverified":                        {update: func(s *apiregistrationv1.APIService) { s.Spec.InsecureSkipTLSVerify = true }, want: changed},
		"marked for kube-apiserver": {update: func(s *apiregistrationv1.APIService) {
			metav1.SetMetaDataLabel(&s.ObjectMeta, definitionguard.AutomanagedLabel, "onstart")
		}, want: changed},
		"another label":                       {update: func(s *apiregistrationv1.APIService) { metav1.SetMetaDataLabel(&s.ObjectMeta, "team", "a") }},
		"an annotation":                       {update: func(s *apiregistrationv1.APIService) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, "a", "b") }},
		"nothing":                             {update: func(*apiregistrationv1.APIService) {}},
		"a change of annex's own":             {old: func(s *apiregistrationv1.APIService) { s.Spec.Group = "kubeannex.io" }, update: func(s *apiregistrationv1.APIService) { s.Spec.Service.Name = "other" }},
		"a local one is taken over by a user": {old: local, update: func(s *apiregistrationv1.APIService) { *s = *routed() }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			old, operation := routed(), admission.Delete
			if tc.old != nil {
				tc.old(old)
			}
			// A nil pointer in the interface would not be nil.
			var object runtime.Object
			if tc.update != nil {
				updated := old.DeepCopy()
				tc.update(updated)
				object, operation = updated, admission.Update
			}
			username := tc.user
			if username == "" {
				username = "admin"
			}
			if got := decide(t, operation, object, old, username); got != tc.want {
				t.Errorf("refusal\n%q, want\n%q", got, tc.want)
			}
		})
	}
}

// decide asks the policy as kube-apiserver does and returns the refusal, if any.
func decide(t *testing.T, operation admission.Operation, object, old runtime.Object, username string) string {
	t.Helper()
	guard, _ := newGuard()
	kind := apiregistrationv1.SchemeGroupVersion.WithKind("APIService")
	resource := apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(object, old, kind, "", "v1."+group, resource, "", operation, nil, false,
			&user.DefaultInfo{Name: username, Groups: []string{user.SystemPrivilegedGroup}}),
		VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old), VersionedKind: kind,
	}
	result := compile(guard.policy()).Validate(t.Context(), resource, attributes, nil, nil, celconfig.RuntimeCELCostBudget, nil)
	var refusals []string
	for _, decision := range result.Decisions {
		if decision.Evaluation == validating.EvalError {
			t.Errorf("the policy cannot be evaluated: %s", decision.Message)
		}
		if decision.Action == validating.ActionDeny {
			if decision.Reason != metav1.StatusReasonForbidden {
				t.Errorf("reason %s", decision.Reason)
			}
			refusals = append(refusals, decision.Message)
		}
	}
	return strings.Join(refusals, "; ")
}

// compile makes of a policy what kube-apiserver makes of it, with the CEL of
// Kubernetes 1.30, the first version where policies are stable.
func compile(policy *admissionregistrationv1.ValidatingAdmissionPolicy) validating.Validator {
	var conditions, validations, messages []admissioncel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, validation := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{
			Expression: validation.Expression, Message: validation.Message, Reason: validation.Reason,
		})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: validation.MessageExpression})
	}
	compiler := admissioncel.NewConditionCompiler(environment.MustBaseEnvSet(utilversion.MajorMinor(1, 30)))
	compiled := func(expressions []admissioncel.ExpressionAccessor) admissioncel.ConditionEvaluator {
		return compiler.CompileCondition(expressions, admissioncel.OptionalVariableDeclarations{}, environment.NewExpressions)
	}
	return validating.NewValidator(compiled(validations),
		matchconditions.NewMatcher(compiled(conditions), policy.Spec.FailurePolicy, "policy", "validate", policy.Name),
		compiled(nil), compiled(messages), policy.Spec.FailurePolicy, nil)
}
