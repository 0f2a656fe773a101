// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// retryAfterSeconds is what a refused client is told to wait.
const retryAfterSeconds = 1

// strayWriteGrace is how long a write counts as being in flight after its
// request was cut short: upstream's handlers return then, while the call to etcd
// that they have started may still be carried out
// (k8s.io/apiserver pkg/endpoints/handlers/finisher).
const strayWriteGrace = time.Second

// Handler puts the gate before the handler of the resources. It belongs behind
// authentication and authorization: it reads the request's user and what is
// requested from the context, and what WithFrontProxy and WithLoopback have noted
// there. Resources of the groups in ungated, the server's own, always pass.
// serializer encodes the refusals.
func (g *Gate) Handler(inner http.Handler, serializer runtime.NegotiatedSerializer, ungated ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.APIGroup == "" || slices.Contains(ungated, info.APIGroup) || IsLoopback(req.Context()) {
			inner.ServeHTTP(w, req)
			return
		}
		k := kindOf(info.Verb)
		ctx, end := req.Context(), context.CancelCauseFunc(nil)
		if k == watch {
			ctx, end = context.WithCancelCause(ctx)
			defer end(nil)
		}
		p, mode := g.admit(info.APIGroup, k, fromFrontProxy(ctx), end)
		if p == nil {
			g.metrics.refused(info.APIGroup, mode)
			version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			responsewriters.ErrorNegotiated(refusal(mode, k, info.APIGroup), serializer, version, w, req)
			return
		}
		defer func() { leaveAfter(req.Context(), p) }()
		if k == watch {
			serveWatch(ctx, inner, w, req, info.APIGroup)
			return
		}
		inner.ServeHTTP(w, req)
	})
}

// leaveAfter ends a pass, a little later when its request was cut short.
func leaveAfter(ctx context.Context, p *pass) {
	if p.kind == write && ctx.Err() != nil {
		time.AfterFunc(strayWriteGrace, p.leave)
		return
	}
	p.leave()
}

func kindOf(verb string) kind {
	switch verb {
	case "get", "list":
		return read
	case "watch":
		return watch
	default:
		return write
	}
}

// refusal is the answer of a mode to a request that it does not allow. Clients
// of Kubernetes wait and try again after 429 and 503, and list again after 410.
func refusal(mode v1alpha1.ServingMode, k kind, name string) *apierrors.StatusError {
	switch {
	case mode == v1alpha1.ServingReadOnly:
		return apierrors.NewTooManyRequests(fmt.Sprintf("writes to %s are held back for a moment while the group moves", name), retryAfterSeconds)
	case mode == v1alpha1.ServingReleased && k == watch:
		return expired(name)
	case mode == v1alpha1.ServingReleased:
		return apierrors.NewTooManyRequests(fmt.Sprintf("%s is going back to the cluster", name), retryAfterSeconds)
	case mode == starting:
		return unavailable(fmt.Sprintf("%s cannot be served yet: the server has not read its AnnexedGroups and definitions", name))
	case mode == unknown:
		return unavailable(fmt.Sprintf("the cluster sends requests of %s here, where neither an AnnexedGroup nor a definition of it exists: "+
			"see Disaster recovery in docs/operations.md, or remove its APIServices if its objects were never kept here", name))
	default:
		return unavailable(fmt.Sprintf("%s is being imported and cannot be served yet: see its AnnexedGroup", name))
	}
}

// expired makes a client list again.
func expired(name string) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("%s has moved: list again", name))
}

func unavailable(message string) *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	return err
}
