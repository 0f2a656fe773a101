// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// withoutSelectors asks about a request with selectors without them first, and with them only if that is not
// allowed. A selector "can only limit access, not broaden it" (k8s.io/api authorization/v1, ResourceAttributes): who may see
// everything may see a part. So one remembered answer does for all selectors of a user (docs/adr/0007-authorization.md).
//
// Every method is written out: one that upstream adds must stop the build here.
type withoutSelectors struct {
	inner authorizer.Authorizer
}

var _ authorizer.Authorizer = withoutSelectors{}

// Authorize implements authorizer.Authorizer. The second question is asked also when the first has failed: its answer may
// be remembered.
func (w withoutSelectors) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !selects(a) {
		return w.inner.Authorize(ctx, a)
	}
	decision, reason, err := w.inner.Authorize(ctx, unselected{a})
	if decision == authorizer.DecisionAllow || ctx.Err() != nil {
		return decision, reason, err
	}
	return w.inner.Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer. A SubjectAccessReview knows no conditions.
func (w withoutSelectors) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(w.Authorize(ctx, a))
}

// EvaluateConditions implements authorizer.Authorizer.
func (withoutSelectors) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// selects reports whether a request has selectors, readable or not.
func selects(a authorizer.Attributes) bool {
	byField, fieldErr := a.GetFieldSelector()
	byLabel, labelErr := a.GetLabelSelector()
	return len(byField) > 0 || len(byLabel) > 0 || fieldErr != nil || labelErr != nil
}

// unselected is a request without its selectors. Its name stays, also one that was taken from a selector of metadata.name:
// rights may be given and refused by name.
type unselected struct {
	authorizer.Attributes
}

// GetFieldSelector implements authorizer.Attributes.
func (unselected) GetFieldSelector() (fields.Requirements, error) { return nil, nil }

// GetLabelSelector implements authorizer.Attributes.
func (unselected) GetLabelSelector() (labels.Requirements, error) { return nil, nil }
