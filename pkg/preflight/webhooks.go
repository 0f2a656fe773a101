// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// fencePrefix begins the names of annex's own webhooks.
const fencePrefix = "annex-"

func (c *collector) lookAtWebhooks(ctx context.Context) error {
	registrations := c.clients.Kube.AdmissionregistrationV1()
	mutating, err := registrations.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		if err := c.unreadable(CheckWebhooks, "MutatingWebhookConfigurations", err); err != nil {
			return err
		}
		mutating = &admissionregistrationv1.MutatingWebhookConfigurationList{}
	}
	for _, configuration := range mutating.Items {
		for _, w := range configuration.Webhooks {
			c.addWebhook("Mutating", configuration.Name, w.Name, w.Rules, w.FailurePolicy, &w.ClientConfig)
		}
	}
	validating, err := registrations.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		if err := c.unreadable(CheckWebhooks, "ValidatingWebhookConfigurations", err); err != nil {
			return err
		}
		validating = &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	}
	for _, configuration := range validating.Items {
		for _, w := range configuration.Webhooks {
			c.addWebhook("Validating", configuration.Name, w.Name, w.Rules, w.FailurePolicy, &w.ClientConfig)
		}
	}
	c.checkWebhooks()
	return nil
}

// addWebhook reports a webhook if one of its rules is about the group.
func (c *collector) addWebhook(kind, configuration, name string, rules []admissionregistrationv1.RuleWithOperations,
	policy *admissionregistrationv1.FailurePolicyType, config *admissionregistrationv1.WebhookClientConfig,
) {
	if strings.HasPrefix(configuration, fencePrefix) {
		return
	}
	resources := sets.New[string]()
	for _, rule := range rules {
		if slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.APIGroups, c.group) {
			resources.Insert(c.matched(rule.Resources)...)
		}
	}
	if resources.Len() == 0 {
		return
	}
	webhook := Webhook{Type: kind, Configuration: configuration, Name: name, Resources: sets.List(resources), FailurePolicy: string(admissionregistrationv1.Fail)}
	if policy != nil {
		webhook.FailurePolicy = string(*policy)
	}
	switch {
	case config.Service != nil:
		webhook.Target = "service " + config.Service.Namespace + "/" + config.Service.Name
	case config.URL != nil:
		webhook.Target = *config.URL
	}
	c.report.Webhooks = append(c.report.Webhooks, webhook)
}

// matched returns the group's resources that the patterns of a rule name. The
// patterns are "name", "name/subresource" and either part as "*".
func (c *collector) matched(patterns []string) []string {
	var matched []string
	for _, pattern := range patterns {
		name, _, _ := strings.Cut(pattern, "/")
		if name == "*" {
			return []string{"*"}
		}
		if slices.ContainsFunc(c.report.Resources, func(r Resource) bool { return r.Name == name }) {
			matched = append(matched, name)
		}
	}
	return matched
}

func (c *collector) checkWebhooks() {
	for _, w := range c.report.Webhooks {
		severity, consequence := SeverityInfo, "otherwise it is passed over"
		if w.FailurePolicy == string(admissionregistrationv1.Fail) {
			severity, consequence = SeverityWarning, "otherwise writes fail"
		}
		c.addf(severity, CheckWebhooks, "annex too calls webhook %s of %sWebhookConfiguration %s, so %s must be reachable from annex; %s", w.Name, w.Type, w.Configuration, w.Target, consequence)
	}
}
