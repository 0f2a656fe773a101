// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// authorize asks for the right to list, and for a watch to watch, exactly as
// the filter of a server would. Who may not is answered as by that
// (k8s.io/apiserver pkg/endpoints/filters, WithAuthorization).
func (e *Explainer) authorize(ctx context.Context, request *Request) error {
	verbs := []string{verbList}
	if request.Info.Verb == verbWatch {
		verbs = append(verbs, verbWatch)
	}
	for _, verb := range verbs {
		info := *request.Info
		info.Verb = verb
		if err := e.allows(ctx, &info); err != nil {
			return err
		}
	}
	return nil
}

// allows returns the error with which a server refuses the user of the context.
func (e *Explainer) allows(ctx context.Context, info *genericapirequest.RequestInfo) error {
	attributes, err := filters.GetAuthorizerAttributes(genericapirequest.WithRequestInfo(ctx, info))
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	decision, reason, err := e.config.Authorizer.Authorize(ctx, attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewInternalError(err)
	default:
		return responsewriters.ForbiddenStatusError(attributes, reason)
	}
}

// mayListAll asks for the right to list all objects of the resource, if less is asked for: the
// right to list one namespace, one name, or what a selector selects, is none to learn of others.
func (e *Explainer) mayListAll(ctx context.Context, request *Request) bool {
	all := *request.Info
	if all.Namespace+all.Name+all.FieldSelector+all.LabelSelector == "" {
		return true
	}
	all.Verb, all.Namespace, all.Name, all.FieldSelector, all.LabelSelector = verbList, "", "", "", ""
	return e.allows(ctx, &all) == nil
}

// hide takes out of a reading what follows from all objects of the resource. Estimates do,
// because the share of the objects that the sample knows does, and so does the choice of an
// index. Figures that remain are -1 or 0.
func hide(reading annexed.Reading) annexed.Reading {
	reading.Index, reading.ObjectBytes = "", 0
	reading.Total, reading.Scanned, reading.Returned = -1, -1, -1
	return reading
}

// hideCost does so with the cost of a list that was run: its answer is the user's.
func hideCost(cost *kubeannex.ListCost) {
	cost.Total, cost.Scanned = nil, nil
}

// hidden says what is hidden, and what would show it.
func hidden(request *Request) string {
	return fmt.Sprintf("The index that is read, the objects that are scanned, every estimate, the fairness seats and advice on the cost: "+
		"they tell of objects that were not asked for, and are shown to those who may list all %s.", request.Resource().GroupResource())
}
