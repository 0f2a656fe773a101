// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// longestPause is when everything is looked at without a reason. What a lost watch
// does not tell is found then.
const longestPause = 10 * time.Minute

var _ reconcile.Reconciler = &Reconciler{}

// Reconciler does all work on certificates: there is one request for everything,
// since every part follows from the authority. Only the leader may run it.
type Reconciler struct {
	Store

	// Issuer is nil when somebody else issues. CABundles follow AnnexCA and WebhookCA then.
	Issuer             *Issuer
	CABundles          *CABundles
	AnnexCA, WebhookCA func() []byte
	// Etcd is nil unless annex has an etcd of its own.
	Etcd *EtcdIssuer

	// failed is the failure that was told last.
	failed string
}

// Reconcile implements reconcile.Reconciler. It looks at the time by itself.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	next := r.Clock.Now().Add(longestPause)
	var errs []error
	for _, sync := range r.parts() {
		at, err := sync(ctx)
		switch {
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			next = r.Clock.Now() // somebody else wrote: look at what is there now
		case err != nil:
			errs = append(errs, err)
		case !at.IsZero():
			next = earlier(next, at)
		}
	}
	err := joined(errs)
	r.tell(err)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: max(next.Sub(r.Clock.Now()), time.Millisecond)}, nil
}

func (r *Reconciler) parts() []func(context.Context) (time.Time, error) {
	var parts []func(context.Context) (time.Time, error)
	if r.Issuer != nil {
		parts = append(parts, r.Issuer.Sync)
	} else {
		parts = append(parts, func(ctx context.Context) (time.Time, error) {
			return time.Time{}, r.CABundles.Apply(ctx, r.AnnexCA(), r.WebhookCA())
		})
	}
	if r.Etcd != nil {
		parts = append(parts, r.Etcd.Sync)
	}
	return parts
}

// Secrets are the names of all Secrets that are kept.
func (r *Reconciler) Secrets() []string {
	var names []string
	if r.Issuer != nil {
		names = append(names, AuthoritySecret)
		for _, leaf := range r.Issuer.Leaves {
			names = append(names, leaf.Secret)
		}
	}
	if r.Etcd != nil {
		names = append(names, EtcdAuthoritySecret)
		for _, leaf := range r.Etcd.Leaves() {
			names = append(names, leaf.Secret)
		}
	}
	return names
}

// tell counts failures and shows each one once to users.
func (r *Reconciler) tell(err error) {
	if err == nil {
		r.failed = ""
		return
	}
	r.Metrics.failed()
	if text := err.Error(); text != r.failed {
		r.failed = text
		r.event(AuthoritySecret, corev1.EventTypeWarning, "CertificatesFailed", "Issue", text)
	}
}
