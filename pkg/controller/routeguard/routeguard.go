// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package routeguard keeps the APIServices of groups that annex serves as they
// are. kube-apiserver replaces one that is deleted by a local one at once, and
// clients would read the cluster's old copies until the controller is back. The
// guard is a ValidatingAdmissionPolicy: kube-apiserver decides by itself, also
// while annex and its controller are down.
package routeguard

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/controller/definitionguard"
	"github.com/kubeannex/annex/pkg/controller/ensure"
)

// Name is the name of the ValidatingAdmissionPolicy and of its binding.
const Name = "annex-routes"

// Guard puts the policy in place. It has to be there while annex serves a group
// or is about to.
type Guard struct {
	// Client is of the host.
	Client kubernetes.Interface
	// Service is annex: what the APIServices name that are guarded.
	Service apiregistrationv1.ServiceReference
	// Username is who the controller is at the host, the only one who may change
	// or delete a route.
	Username string
}

// Ensure creates the policy and its binding, or makes them what they should be.
// It writes nothing when they are. A kube-apiserver obeys them about a second later.
func (g *Guard) Ensure(ctx context.Context) error {
	if g.Username == "" {
		return errors.New("guarding APIServices: the cluster did not say who annex-controller is, which the guard would lock out: give the controller credentials with a user name")
	}
	admission, policy, binding := g.Client.AdmissionregistrationV1(), g.policy(), binding()
	err := ensure.Object(ctx, admission.ValidatingAdmissionPolicies(), policy, func(have *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
		same := apiequality.Semantic.DeepEqual(policy.Spec, have.Spec)
		have.Spec = policy.Spec
		return !same
	})
	if err != nil {
		return fmt.Errorf("applying the ValidatingAdmissionPolicy %s: %w", Name, err)
	}
	err = ensure.Object(ctx, admission.ValidatingAdmissionPolicyBindings(), binding, func(have *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
		same := apiequality.Semantic.DeepEqual(binding.Spec, have.Spec)
		have.Spec = binding.Spec
		return !same
	})
	if err != nil {
		return fmt.Errorf("applying the ValidatingAdmissionPolicyBinding %s: %w", Name, err)
	}
	return nil
}

// Remove deletes both. It is no error when they are not there.
func (g *Guard) Remove(ctx context.Context) error {
	admission := g.Client.AdmissionregistrationV1()
	if err := admission.ValidatingAdmissionPolicyBindings().Delete(ctx, Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the ValidatingAdmissionPolicyBinding %s: %w", Name, err)
	}
	if err := admission.ValidatingAdmissionPolicies().Delete(ctx, Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the ValidatingAdmissionPolicy %s: %w", Name, err)
	}
	return nil
}

// wayOut is the end of each refusal, a CEL expression.
const wayOut = "': `kubectl annex release ' + oldObject.spec.group + '` gives the group back to the cluster" +
	" (when annex is lost, stop annex-controller and delete the ValidatingAdmissionPolicyBinding " + Name + ", which lifts this guard)'"

// unchanged says in CEL that an update leaves the way to annex as it is. All
// fields may be absent.
const unchanged = "object.spec.?service == oldObject.spec.?service" +
	" && object.spec.?caBundle == oldObject.spec.?caBundle" +
	" && object.spec.?insecureSkipTLSVerify.orValue(false) == oldObject.spec.?insecureSkipTLSVerify.orValue(false)" +
	" && !object.metadata.?labels[?'" + definitionguard.AutomanagedLabel + "'].hasValue()"

// policy spells out what kube-apiserver would default, so that the two can be compared.
func (g *Guard) policy() *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				// The status is not among them: it cannot change anything else.
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update, admissionregistrationv1.Delete},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{apiregistrationv1.GroupName}, APIVersions: []string{"v1"},
							Resources: []string{"apiservices"}, Scope: ptr.To(admissionregistrationv1.AllScopes),
						},
					},
				}},
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				MatchPolicy: ptr.To(admissionregistrationv1.Equivalent),
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "routes-to-annex", Expression: fmt.Sprintf(
					"has(oldObject.spec.service) && oldObject.spec.service.namespace == %q && oldObject.spec.service.name == %q", g.Service.Namespace, g.Service.Name)},
				// Who removes annex deletes the APIService of its own group.
				{Name: "not-annex-itself", Expression: "oldObject.spec.group != " + strconv.Quote(kubeannex.GroupName)},
				{Name: "not-the-controller", Expression: "request.userInfo.username != " + strconv.Quote(g.Username)},
			},
			Validations: []admissionregistrationv1.Validation{
				refusal("request.operation != 'DELETE'", "'it cannot be deleted, clients would read old copies in the cluster'"),
				refusal("request.operation == 'DELETE' || "+unchanged,
					"'its service, caBundle, insecureSkipTLSVerify and label "+definitionguard.AutomanagedLabel+" cannot be changed'"),
			},
		},
	}
}

// refusal is given, with a reason in CEL, when an expression is not true.
func refusal(expression, reason string) admissionregistrationv1.Validation {
	return admissionregistrationv1.Validation{
		Expression:        expression,
		Message:           "annex serves the group of this APIService: release the group with kubectl annex release",
		MessageExpression: "'APIService ' + oldObject.metadata.name + ' sends the group ' + oldObject.spec.group + ' to annex, ' + " + reason + " + " + wayOut,
		Reason:            ptr.To(metav1.StatusReasonForbidden),
	}
}

func binding() *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}
