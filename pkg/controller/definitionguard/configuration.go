// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package definitionguard

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/controller/ensure"
	"github.com/kubeannex/annex/pkg/controller/fence"
)

const (
	// Path is where the webhook server serves NewWebhook.
	Path = "/definitions"
	// ConfigurationName is the name of the guard's ValidatingWebhookConfiguration.
	ConfigurationName = "annex-definitions"

	timeoutSeconds = 10
)

// Guard puts the webhook configuration in place.
type Guard struct {
	// Client is of the host.
	Client kubernetes.Interface
	// Webhook is how kube-apiserver reaches the webhook server, without a path.
	Webhook admissionregistrationv1.WebhookClientConfig
	// Username is who the controller is at the host. It is not asked about.
	Username string
}

// Apply makes the guard watch over the definitions of the groups, and of no
// others. Without groups there is no configuration.
func (g *Guard) Apply(ctx context.Context, groups []string) error {
	configurations := g.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if len(groups) == 0 {
		err := configurations.Delete(ctx, ConfigurationName, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the guard %s: %w", ConfigurationName, err)
		}
		return nil
	}
	if err := ensure.Webhooks(ctx, g.Client, g.configuration(groups)); err != nil {
		return fmt.Errorf("applying the guard %s: %w", ConfigurationName, err)
	}
	return nil
}

// configuration asks about definitions of the groups only: the rest of the
// cluster does not depend on annex.
func (g *Guard) configuration(groups []string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	conditions := []admissionregistrationv1.MatchCondition{{
		Name: "annexed-group", Expression: "object.spec.group in [" + quoted(groups) + "]",
	}}
	if g.Username != "" {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{
			Name: "not-the-controller", Expression: "request.userInfo.username != " + strconv.Quote(g.Username),
		})
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "definitions.kubeannex.io",
			ClientConfig: fence.ClientConfig(g.Webhook, Path),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{"apiextensions.k8s.io"}, APIVersions: []string{"v1"},
					Resources: []string{"customresourcedefinitions"}, Scope: ptr.To(admissionregistrationv1.ClusterScope),
				},
			}},
			MatchConditions:         conditions,
			FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
			MatchPolicy:             ptr.To(admissionregistrationv1.Equivalent),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          ptr.To[int32](timeoutSeconds),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

func quoted(groups []string) string {
	sorted := slices.Sorted(slices.Values(groups))
	for i := range sorted {
		sorted[i] = strconv.Quote(sorted[i])
	}
	return strings.Join(sorted, ", ")
}
