// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// withoutSelectors asks about a list, a watch or a deletion of many without its selectors first, and with them only if
// that is not allowed. A selector "can only limit access, not broaden it" (k8s.io/api authorization/v1, ResourceAttributes):
// who may see everything may see a part. So one remembered answer does for all selectors of a user (docs/adr/0007-authorization.md).
type withoutSelectors struct {
	authorizer.Authorizer
}

// Authorize implements authorizer.Authorizer.
func (w withoutSelectors) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if !selects(a) {
		return w.Authorizer.Authorize(ctx, a)
	}
	decision, reason, err := w.Authorizer.Authorize(ctx, unselected{a})
	if decision == authorizer.DecisionAllow || err != nil {
		return decision, reason, err
	}
	return w.Authorizer.Authorize(ctx, a)
}

// selects reports whether a request has selectors, readable or not.
func selects(a authorizer.Attributes) bool {
	byField, fieldErr := a.GetFieldSelector()
	byLabel, labelErr := a.GetLabelSelector()
	return len(byField) > 0 || len(byLabel) > 0 || fieldErr != nil || labelErr != nil
}

// unselected is a request without its selectors.
type unselected struct {
	authorizer.Attributes
}

// GetFieldSelector implements authorizer.Attributes.
func (unselected) GetFieldSelector() (fields.Requirements, error) { return nil, nil }

// GetLabelSelector implements authorizer.Attributes.
func (unselected) GetLabelSelector() (labels.Requirements, error) { return nil, nil }
