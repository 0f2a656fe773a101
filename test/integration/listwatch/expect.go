// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// expectation is what a rule means for one query.
type expectation struct {
	rule
	index  int      // of the rule; -1 for a query that checks refuse
	causes []string // of a 422
}

// expect finds the rule for a query.
func expect(q query) expectation {
	q = withDefaults(q)
	var causes []string
	for _, c := range checks(q.verb) {
		if c.applies(q) {
			causes = append(causes, c.cause)
		}
	}
	if len(causes) > 0 {
		slices.Sort(causes)
		return expectation{rule: invalid(), index: -1, causes: causes}
	}
	for i, r := range rules(q.verb) {
		if r.applies(q) {
			causes := []string{}
			if r.cause != "" {
				causes = append(causes, ": "+string(r.cause))
			}
			return expectation{rule: r, index: i, causes: causes}
		}
	}
	return expectation{index: -1}
}

// costs returns what a request of a verb, or n of them, cost etcd.
func (s server) costs(v verb, n int) annexed.Counts {
	counts := annexed.Counts{}
	if n == 0 {
		return counts
	}
	switch s {
	case servedByConsistent:
		counts[annexed.Request{Caller: annexed.CallerConsistentRead, Operation: annexed.OperationCurrentResourceVersion}] = uint64(n)
	case servedByEtcd:
		operation := map[verb]annexed.Operation{
			get: annexed.OperationGet, list: annexed.OperationList, watch: annexed.OperationWatch,
		}[v]
		counts[annexed.Request{Caller: annexed.CallerClient, Operation: operation}] = uint64(n)
	}
	return counts
}

// diffCounts compares two counts, for a failure.
func diffCounts(want, got annexed.Counts) string { return cmp.Diff(want, got) }

// page is what a list that succeeds has to hold.
type page struct {
	items []string
	// revision is what the list has to be labelled with; zero means "current or later".
	revision int64
	// more says that a continue token has to be there.
	more bool
	// remaining is remainingItemCount; nil unless there is more and no selector.
	remaining *int64
}

// expectPage computes the answer to a list from the journal.
func expectPage(w *World, r *resource, q query, want rule) page {
	revision, labelled, after := w.revisions[rvCurrent], int64(0), ""
	switch want.content {
	case stateAtRV:
		revision = w.revisions[q.rv]
		labelled = revision
	case restAtToken:
		revision = r.tokens[tokenAt{q.token, q.selector.namespace}].revision
		labelled = revision
		after = r.tokenKey(q)
	case restLatest:
		after = r.tokenKey(q)
	}
	inRange := filter(r.journal.at(revision), func(o object) bool { return q.inRange(o) && o.key() > after })
	limit := q.limit
	if q.rv == rvZero && want.today != servedByEtcd {
		limit = 0 // computeListLimit in k8s.io/apiserver pkg/storage/cacher/cacher.go
	}
	return cut(inRange, q.selector, limit, labelled)
}

// inRange says whether the storage reads an object to answer a query: a range
// is narrowed by the path, by a namespace field on a first page, and to one key
// by a name (ListPredicate in k8s.io/apiserver pkg/registry/generic/registry/store.go).
func (q query) inRange(o object) bool {
	prefix := q.selector.namespace
	if prefix == "" && q.token == tokenNone {
		prefix = q.selector.prefix
	}
	if q.single() && o.key() != q.selector.key {
		return false
	}
	return prefix == "" || o.namespace == prefix
}

// cut takes what matches, up to the limit.
func cut(inRange []object, s selector, limit int, labelled int64) page {
	var matching []object
	for i, o := range inRange {
		if !s.matches(o) {
			continue
		}
		matching = append(matching, o)
		if limit > 0 && len(matching) == limit && i+1 < len(inRange) {
			want := page{items: texts(matching), revision: labelled, more: true}
			if s.label == "" && s.field == "" {
				remaining := int64(len(inRange) - limit)
				want.remaining = &remaining
			}
			return want
		}
	}
	return page{items: texts(matching), revision: labelled}
}

// tokenKey is the key that the token of a query names: that of the first
// object. Tokens hold keys relative to the path.
func (r *resource) tokenKey(q query) string {
	content, err := decodeToken(r.tokens[tokenAt{q.token, q.selector.namespace}].text)
	if err != nil {
		return "undecodable token: " + err.Error()
	}
	key := strings.TrimPrefix(strings.TrimSuffix(content.Start, "\x00"), "/")
	if q.selector.namespace != "" {
		return q.selector.namespace + "/" + key
	}
	return key
}

// expectEvents computes the events of a watch from the journal, without bookmarks.
func expectEvents(w *World, r *resource, q query, want content) []string {
	inScope := func(o object) bool {
		return (q.selector.namespace == "" || o.namespace == q.selector.namespace) && q.selector.matches(o)
	}
	switch want {
	case initialEvents:
		events := []string{}
		for _, o := range filter(r.journal.at(w.revisions[rvCurrent]), inScope) {
			events = append(events, "ADDED "+o.String())
		}
		return events
	case eventsSinceRV:
		return r.journal.since(w.revisions[q.rv], inScope)
	default:
		return []string{}
	}
}
