// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownerhold keeps the garbage collector from dependents of objects that
// are about to get new UIDs.
//
// When a release gives the cluster objects that were born in annex, they get new
// UIDs, and the ownerReferences of their dependents name UIDs that no longer
// exist until they are repaired. The garbage collector reads an owner by name and
// takes another UID for its absence (kubernetes/pkg/controller/garbagecollector,
// attemptToDeleteItem and isDangling), so it would delete the dependents, or take
// the reference off one that has another owner. A hold is a validating webhook
// that refuses exactly these requests: it is in place on every kube-apiserver
// before requests for the group reach the cluster, and goes when the references
// are repaired.
//
// The refusal is 403, not 429 with Retry-After. For 429 the client of the garbage
// collector waits and sends the same request up to ten times more; a deletion
// that was decided before the repair, and that no longer has the precondition on
// the resourceVersion (deleteObject drops it after a conflict), would then be
// carried out after it. After a 403 the garbage collector looks at the dependent
// again from the start, with delays that begin at 5 milliseconds.
package ownerhold

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kubeannex/annex/pkg/controller/ensure"
	"github.com/kubeannex/annex/pkg/controller/fence"
)

const (
	// Path is where the webhook server serves NewWebhook.
	Path = "/hold"
	// Label marks every hold. Its value is the group that is being released.
	Label = "kubeannex.io/hold"

	namePrefix     = "annex-hold-"
	probePrefix    = "annex-hold-probe-"
	timeoutSeconds = 5

	// collector is who the garbage collector is, and sharedIdentity who it is
	// together with all other controllers when kube-controller-manager runs without
	// --use-service-account-credentials.
	collector      = "system:serviceaccount:kube-system:generic-garbage-collector"
	sharedIdentity = "system:kube-controller-manager"
)

// Name is the name of the hold for a group.
func Name(group string) string { return namePrefix + group }

// Holds puts holds in place and takes them away.
type Holds struct {
	// Client is of the host.
	Client kubernetes.Interface
	// Webhook is how kube-apiserver reaches the webhook server, without a path.
	Webhook admissionregistrationv1.WebhookClientConfig
	// Namespace is where the probes would be created.
	Namespace string
}

// Raise puts the hold in place. The garbage collector itself is kept from all
// resources: dependents may appear while they are looked for. The identity that
// it may share with other controllers is kept only from the given ones, where
// dependents were found: a lease that cannot be renewed would stop them all.
func (h *Holds) Raise(ctx context.Context, group string, dependents []schema.GroupResource) error {
	want := h.configuration(group, dependents)
	if err := ensure.Webhooks(ctx, h.Client, want); err != nil {
		return fmt.Errorf("keeping the garbage collector off by %s: %w", want.Name, err)
	}
	return nil
}

// Lower takes the hold away. It is no error when there is none.
func (h *Holds) Lower(ctx context.Context, group string) error {
	err := h.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, Name(group), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the hold %s: %w", Name(group), err)
	}
	return nil
}

// configuration has three webhooks in one object, so that a kube-apiserver that
// answers for the probe is known to have the others too.
func (h *Holds) configuration(group string, dependents []schema.GroupResource) *admissionregistrationv1.ValidatingWebhookConfiguration {
	all := admissionregistrationv1.Rule{
		APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"},
		Scope: ptr.To(admissionregistrationv1.AllScopes),
	}
	webhooks := []admissionregistrationv1.ValidatingWebhook{
		h.webhook("collector.hold.kubeannex.io", by(collector), rule(all, admissionregistrationv1.Update, admissionregistrationv1.Delete)),
	}
	var rules []admissionregistrationv1.RuleWithOperations
	for _, resource := range dependents {
		found := all
		found.APIGroups, found.Resources = []string{resource.Group}, []string{resource.Resource}
		rules = append(rules, rule(found, admissionregistrationv1.Update, admissionregistrationv1.Delete))
	}
	if len(rules) > 0 {
		webhooks = append(webhooks, h.webhook("controllers.hold.kubeannex.io", by(sharedIdentity), rules...))
	}
	probe := h.webhook("probe.hold.kubeannex.io", "object.metadata.name == "+strconv.Quote(probePrefix+group),
		rule(admissionregistrationv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
			Scope: ptr.To(admissionregistrationv1.NamespacedScope),
		}, admissionregistrationv1.Create))
	probe.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: h.Namespace}}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: Name(group), Labels: map[string]string{Label: group}},
		Webhooks:   append(webhooks, probe),
	}
}

func by(user string) string { return "request.userInfo.username == " + strconv.Quote(user) }

func rule(rule admissionregistrationv1.Rule, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{Operations: operations, Rule: rule}
}

func (h *Holds) webhook(name, condition string, rules ...admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    name,
		ClientConfig:            fence.ClientConfig(h.Webhook, Path),
		Rules:                   rules,
		MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "who", Expression: condition}},
		FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
		MatchPolicy:             ptr.To(admissionregistrationv1.Equivalent),
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          ptr.To[int32](timeoutSeconds),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// message is what the garbage collector logs.
const message = "a group is being released from annex and this object's owner gets a new UID: its ownerReferences are repaired first"

// Handler refuses whatever the configurations send it. It knows no state.
type Handler struct{}

var _ admission.Handler = Handler{}

// NewWebhook returns the handler as the webhook server takes it, at Path.
func NewWebhook() http.Handler { return &admission.Webhook{Handler: Handler{}} }

// Handle refuses.
func (Handler) Handle(context.Context, admission.Request) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message,
	}}}
}

// errNotHeld says that a kube-apiserver does not know the hold yet.
var errNotHeld = errors.New("it lets the garbage collector pass still")

// Check returns nil when the kube-apiserver that client talks to knows the hold:
// a dry run of creating the probe is answered by the webhook.
func Check(ctx context.Context, client kubernetes.Interface, namespace, group string) error {
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: probePrefix + group}}
	_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return errNotHeld
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), message):
		return nil
	default:
		return err
	}
}
