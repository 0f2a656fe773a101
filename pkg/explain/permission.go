// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"

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

// scope is what of a resource a user may list, as far as it matters to a request, and
// so how much he may be told of it.
type scope int

const (
	// scopeRequest is what the request selects and nothing beside it.
	scopeRequest scope = iota
	// scopeNamespace is all objects of the namespace of the request.
	scopeNamespace
	// scopeResource is all objects of the resource.
	scopeResource
)

// scopeOf asks for the right to list more than is asked for, if there is more: the right to
// list one namespace, one name, or what a selector selects, is none to learn of others.
func (e *Explainer) scopeOf(ctx context.Context, request *Request) scope {
	inNamespace := *request.Info
	inNamespace.Verb, inNamespace.Name, inNamespace.FieldSelector, inNamespace.LabelSelector = verbList, "", "", ""
	whole := inNamespace
	whole.Namespace = ""
	asked := request.Info
	switch namespaced, selective := asked.Namespace != "", asked.Name+asked.FieldSelector+asked.LabelSelector != ""; {
	case !namespaced && !selective, e.allows(ctx, &whole) == nil:
		return scopeResource
	case namespaced && !selective, namespaced && e.allows(ctx, &inNamespace) == nil:
		return scopeNamespace
	default:
		return scopeRequest
	}
}

// hide takes out of a reading what follows from objects beyond the scope. What remains is -1 or 0.
func (s scope) hide(reading annexed.Reading) annexed.Reading {
	if s < scopeResource {
		reading.Total, reading.ObjectBytes = -1, 0
	}
	if s < scopeNamespace {
		reading.Scanned, reading.Returned = -1, -1
	}
	return reading
}

// hideCost does so with the cost of a list that was run: its answer is the user's.
func (s scope) hideCost(cost *kubeannex.ListCost) *kubeannex.ListCost {
	if s < scopeResource {
		cost.Total = nil
	}
	if s < scopeNamespace {
		cost.Scanned = nil
	}
	return cost
}

// unknown says what is hidden.
func (s scope) unknown() []string {
	switch s {
	case scopeResource:
		return nil
	case scopeNamespace:
		return []string{"How many objects the resource has, how big they are and what the list costs in fairness seats: you may not list all namespaces."}
	default:
		return []string{"How many objects there are beside those that you may list, and so the estimate of what is scanned, returned and sent, and the fairness seats."}
	}
}
