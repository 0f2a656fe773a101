// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"testing"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
)

var _ delegator.Helper = modelCache{}

// modelCache answers upstream's questions about a cache that remembers what is
// after its start, as the caches of the world do.
type modelCache struct {
	q query
}

func (c modelCache) delegatesAt(kind rv, recursive bool) (delegator.Result, error) {
	beforeCache := kind == rvUncached || kind == rvCompacted
	return delegator.Result{ShouldDelegate: !recursive || beforeCache}, nil
}

// ShouldDelegateExactRV implements delegator.Helper.
func (c modelCache) ShouldDelegateExactRV(_ string, recursive bool) (delegator.Result, error) {
	return c.delegatesAt(c.q.rv, recursive)
}

// ShouldDelegateContinue implements delegator.Helper.
func (c modelCache) ShouldDelegateContinue(_ string, recursive bool) (delegator.Result, error) {
	if c.q.token == tokenLatest {
		return delegator.Result{ConsistentRead: true}, nil
	}
	return c.delegatesAt(rv(c.q.token), recursive)
}

// ShouldDelegateConsistentRead implements delegator.Helper.
func (c modelCache) ShouldDelegateConsistentRead() (delegator.Result, error) {
	return delegator.Result{ConsistentRead: true}, nil
}

// TestRulesAgreeWithUpstream asks upstream's own functions, beside the running
// server, who has to answer a list and which parameters are refused.
func TestRulesAgreeWithUpstream(t *testing.T) {
	for _, r := range shared.resources {
		for _, q := range append(listQueries(r), watchQueries(r)...) {
			want := expect(q)
			options := &metainternalversion.ListOptions{
				Watch: q.verb == watch, ResourceVersion: shared.resourceVersion(q.rv),
				ResourceVersionMatch: metav1.ResourceVersionMatch(q.match), Limit: int64(q.limit),
			}
			if q.token != tokenNone {
				options.Continue = "token"
			}
			if q.initial != absent {
				options.SendInitialEvents = new(q.initial == yes)
			}
			metainternalversion.SetListOptionsDefaults(options, true)
			errs := validation.ValidateListOptions(options, true)
			if len(errs) != len(want.causes) && want.index == -1 || len(errs) > 0 && want.index != -1 {
				t.Errorf("%s\nupstream refuses with %v, we expect %v", q, errs, want.causes)
			}
			if q.verb == watch || want.today == servedByNobody {
				continue
			}
			if got := upstreamServer(t, q, options); got != want.today {
				t.Errorf("%s\nupstream serves from %s, we expect %s", describe(q, want), got, want.today)
			}
		}
	}
}

func upstreamServer(t *testing.T, q query, options *metainternalversion.ListOptions) server {
	t.Helper()
	result, err := delegator.ShouldDelegateList(storage.ListOptions{
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch,
		Predicate: storage.SelectionPredicate{Limit: options.Limit, Continue: options.Continue},
		Recursive: !q.single(),
	}, modelCache{q})
	switch {
	case err != nil:
		t.Errorf("%s: %v", q, err)
		return servedByNobody
	case result.ShouldDelegate:
		return servedByEtcd
	case result.ConsistentRead:
		return servedByConsistent
	default:
		return servedByCache
	}
}

// servedBy124 is the rule of Kubernetes 1.24 (k8s.io/apiserver v0.24,
// pkg/storage/cacher/cacher.go, Get and GetList), for the column of the document.
func servedBy124(q query) server {
	switch {
	case q.verb == watch && q.initial != absent:
		return servedUnknown
	case q.verb == watch:
		return servedByCache
	case q.rv == rvUnset:
		return servedByEtcd
	case q.verb == get:
		return servedByCache
	case q.token != tokenNone, q.limit > 0 && q.rv != rvZero, q.match == matchExact:
		return servedByEtcd
	default:
		return servedByCache
	}
}

// TestOlderRule compares the column for Kubernetes 1.24 with that version's rule.
func TestOlderRule(t *testing.T) {
	for _, r := range shared.resources {
		for _, q := range append(append(getQueries(r), listQueries(r)...), watchQueries(r)...) {
			want := expect(q)
			if want.today == servedByNobody {
				continue
			}
			// A rule may be shared with watches whose parameters came later.
			if older := servedBy124(q); older != servedUnknown && older != want.then {
				t.Errorf("%s\n1.24 served from %s, the table says %s", describe(q, want), older, want.then)
			}
		}
	}
}
