// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fence holds back the writes of one API group on every kube-apiserver.
// A fence is a validating webhook whose answer, 429 with Retry-After, makes
// kubectl and client-go wait and try again. It fails closed: while the webhook
// cannot be reached, writes of the group are refused.
package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	// Path is where the webhook server serves Handler.
	Path = "/fence"
	// Label marks every fence. Its value is the group, which is also in the name.
	Label = "kubeannex.io/fence"

	// sinceAnnotation holds when the fence was put up, with more digits than creationTimestamp has.
	sinceAnnotation = "kubeannex.io/fenced-since"
	namePrefix      = "annex-fence-"
	probePrefix     = "annex-fence-probe-"
	timeoutSeconds  = 5
)

// Name is the name of the fence of a group.
func Name(group string) string { return namePrefix + group }

// probeName is the name of the ConfigMap that nobody can create while the fence of the group holds.
func probeName(group string) string { return probePrefix + group }

// Fence is a fence that is up.
type Fence struct {
	// Group is the group that it holds back.
	Group string
	// UID tells it from an earlier one of the same group.
	UID types.UID
	// Since is when it was put up.
	Since time.Time
}

// Fences puts fences up and takes them down.
type Fences struct {
	// Client is of the host.
	Client kubernetes.Interface
	// Webhook is how kube-apiserver reaches the webhook server, without a path.
	Webhook admissionregistrationv1.WebhookClientConfig
	// Namespace is where the probes would be created.
	Namespace string
}

// Raise puts the fence of a group up, unless it is up already.
func (f *Fences) Raise(ctx context.Context, group string, now time.Time) (*Fence, error) {
	configurations := f.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	created, err := configurations.Create(ctx, f.configuration(group, now), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		fence, err := f.Get(ctx, group)
		if err == nil && fence == nil {
			err = fmt.Errorf("the fence %s is being changed by somebody else: it is tried again", Name(group))
		}
		return fence, err
	}
	if err != nil {
		return nil, fmt.Errorf("creating the fence %s: %w", Name(group), err)
	}
	return describe(created), nil
}

// Get returns the fence of a group, nil when there is none.
func (f *Fences) Get(ctx context.Context, group string) (*Fence, error) {
	stored, err := f.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, Name(group), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the fence %s: %w", Name(group), err)
	}
	return describe(stored), nil
}

// List returns all fences.
func (f *Fences) List(ctx context.Context) ([]Fence, error) {
	list, err := f.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{LabelSelector: Label})
	if err != nil {
		return nil, fmt.Errorf("listing fences: %w", err)
	}
	var fences []Fence
	for i := range list.Items {
		fences = append(fences, *describe(&list.Items[i]))
	}
	return fences, nil
}

// Lower takes a fence down. It is no error when it is gone already, or another
// one is up: that one belongs to a process that has taken over in the meantime.
func (f *Fences) Lower(ctx context.Context, fence *Fence) error {
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &fence.UID}}
	err := f.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, Name(fence.Group), options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting the fence %s: %w", Name(fence.Group), err)
	}
	return nil
}

func describe(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) *Fence {
	since, err := time.Parse(time.RFC3339Nano, configuration.Annotations[sinceAnnotation])
	if err != nil {
		since = configuration.CreationTimestamp.Time
	}
	return &Fence{Group: configuration.Labels[Label], UID: configuration.UID, Since: since}
}

// configuration has two webhooks in one object, so that a kube-apiserver that
// answers for the second one is known to have the first one too.
func (f *Fences) configuration(group string, now time.Time) *admissionregistrationv1.ValidatingWebhookConfiguration {
	held := f.webhook("fence.kubeannex.io", admissionregistrationv1.Rule{
		APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"*/*"},
		Scope: ptr.To(admissionregistrationv1.AllScopes),
	}, admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete)
	probe := f.webhook("probe.fence.kubeannex.io", admissionregistrationv1.Rule{
		APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
		Scope: ptr.To(admissionregistrationv1.NamespacedScope),
	}, admissionregistrationv1.Create)
	probe.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": f.Namespace}}
	probe.MatchConditions = []admissionregistrationv1.MatchCondition{{
		Name: "probe", Expression: fmt.Sprintf("object.metadata.name == %q", probeName(group)),
	}}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{
			Name:        Name(group),
			Labels:      map[string]string{Label: group},
			Annotations: map[string]string{sinceAnnotation: now.UTC().Format(time.RFC3339Nano)},
		},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{held, probe},
	}
}

func (f *Fences) webhook(name string, rule admissionregistrationv1.Rule, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    name,
		ClientConfig:            ClientConfig(f.Webhook, Path),
		Rules:                   []admissionregistrationv1.RuleWithOperations{{Operations: operations, Rule: rule}},
		FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
		MatchPolicy:             ptr.To(admissionregistrationv1.Exact),
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          ptr.To[int32](timeoutSeconds),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// ClientConfig adds a path to how kube-apiserver reaches the webhook server.
func ClientConfig(base admissionregistrationv1.WebhookClientConfig, path string) admissionregistrationv1.WebhookClientConfig {
	config := *base.DeepCopy()
	if config.URL != nil {
		config.URL = ptr.To(*config.URL + path)
	}
	if config.Service != nil {
		config.Service.Path = ptr.To(path)
	}
	return config
}

// errNotHeld says that a kube-apiserver does not know the fence yet.
var errNotHeld = errors.New("it lets writes pass still")

// Holds returns nil when the kube-apiserver that client talks to knows the
// fence: a dry run of creating the probe is answered by the webhook.
func Holds(ctx context.Context, client kubernetes.Interface, namespace, group string) error {
	err := client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("configmaps").
		VersionedParams(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ParameterCodec).
		Body(probe(namespace, group)).
		// The answer that is hoped for is one that a client waits for.
		MaxRetries(0).
		Do(ctx).Error()
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return errNotHeld
	case isAnswer(err, group):
		return nil
	default:
		return err
	}
}
