// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxWaiting keeps requests that wait below the server's in-flight limit of 400.
const maxWaiting = 150

// cacheTimeout is how long the cache waits for a revision (blockTimeout in
// k8s.io/apiserver pkg/storage/cacher/watch_cache.go).
const cacheTimeout = 3 * time.Second

// listQueries returns every combination of parameters.
func listQueries(r *resource) []query {
	var all []query
	for _, s := range r.selectors() {
		for _, kind := range allRVs() {
			for _, m := range allMatches() {
				for _, limit := range []int{0, 1, 500} {
					for _, t := range allTokens() {
						all = append(all, query{verb: list, rv: kind, match: m, limit: limit, token: t, selector: s})
					}
				}
			}
		}
	}
	// The parameter of a watch is refused, with anything else.
	return append(all, query{verb: list, rv: rvUnset, token: tokenNone, selector: r.selectors()[0], initial: yes},
		query{verb: list, rv: rvZero, match: matchExact, token: tokenNone, selector: r.selectors()[0], initial: no})
}

// getQueries returns every combination with the parameters that a GET ignores.
func getQueries(r *resource) []query {
	var all []query
	for _, s := range r.selectors()[:4] {
		for _, kind := range allRVs() {
			for _, m := range allMatches() {
				for _, limit := range []int{0, 500} {
					for _, t := range []token{tokenNone, tokenCached} {
						all = append(all, query{verb: get, rv: kind, match: m, limit: limit, token: t, selector: s})
					}
				}
			}
		}
	}
	return all
}

// CheckGet sends every combination of parameters of a GET and compares the
// answers, and who gave them, with the rules.
func CheckGet(t *testing.T, w *World) {
	t.Helper()
	for _, r := range w.resources {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			sendAll(t, w, r, getQueries(r))
		})
	}
}

// CheckList does the same for LIST.
func CheckList(t *testing.T, w *World) {
	t.Helper()
	for _, r := range w.resources {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			sendAll(t, w, r, listQueries(r))
		})
	}
}

// sendAll sends queries one by one, so that what each costs etcd can be told;
// those that wait for a revision go together at the end.
func sendAll(t *testing.T, w *World, r *resource, queries []query) {
	t.Helper()
	var waiting []query
	hits := map[int]int{}
	for _, q := range queries {
		want := expect(q)
		hits[want.index]++
		if want.waits {
			waiting = append(waiting, q)
			continue
		}
		before := w.clientCounts(r)
		if err := send(t.Context(), w, r, q, want); err != nil {
			t.Errorf("%s\n%v", describe(q, want), err)
		}
		if diff := w.compareCosts(r, want.today.costs(q.verb, 1), before); diff != "" {
			t.Errorf("%s\nrequests to etcd (-want +got):\n%s", describe(q, want), diff)
		}
	}
	before := w.clientCounts(r)
	together(t, maxWaiting, waiting, func(q query, want expectation) error { return send(t.Context(), w, r, q, want) })
	if diff := w.compareCosts(r, servedByCache.costs(queries[0].verb, len(waiting)), before); diff != "" {
		t.Errorf("requests to etcd of %d requests that wait in the cache (-want +got):\n%s", len(waiting), diff)
	}
	reportHits(t, queries[0].verb, hits)
	t.Logf("%d requests, %d of them waited", len(queries), len(waiting))
}

// together calls send for every query, at most limit at a time, and reports what it returns.
func together(t *testing.T, limit int, queries []query, send func(query, expectation) error) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(limit)
	for _, q := range queries {
		group.Go(func() error {
			want := expect(q)
			if err := send(q, want); err != nil {
				t.Errorf("%s\n%v", describe(q, want), err)
			}
			return nil
		})
	}
	group.Wait() //nolint:errcheck // failures are reported above
}

// reportHits demands that every rule was needed.
func reportHits(t *testing.T, v verb, hits map[int]int) {
	t.Helper()
	for i, r := range rules(v) {
		if hits[i] == 0 {
			t.Errorf("no %s reaches the rule %q", v, r.request)
		}
	}
}

func describe(q query, want expectation) string {
	return fmt.Sprintf("%s\nrule: %s → %s, by %s", q, want.request, want.answer, want.today)
}

// send sends a request that is no stream and compares the answer.
func send(ctx context.Context, w *World, r *resource, q query, want expectation) error {
	got, err := w.do(ctx, http.MethodGet, q.url(w, r), nil)
	if err != nil {
		return err
	}
	if got.code != want.code {
		return fmt.Errorf("code %d, want %d: %s", got.code, want.code, got.body)
	}
	switch {
	case got.code != http.StatusOK:
		return compareFailure(got, want)
	case q.verb == get:
		return compareObject(r, got)
	default:
		return comparePage(w, r, q, got, want)
	}
}

func compareFailure(got answer, want expectation) error {
	var status metav1.Status
	if err := json.Unmarshal(got.body, &status); err != nil {
		return fmt.Errorf("decoding %s: %w", got.body, err)
	}
	if err := compareStatus(status, want); err != nil {
		return err
	}
	if retryAfter := got.header.Get("Retry-After") != ""; retryAfter != want.waits {
		return fmt.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
	}
	if want.waits && got.took < cacheTimeout {
		return fmt.Errorf("answered after %s, want at least %s", got.took, cacheTimeout)
	}
	if hasToken := status.Continue != ""; hasToken != want.newToken {
		return fmt.Errorf("continue token of the refusal is %q", status.Continue)
	}
	return nil
}

func compareStatus(status metav1.Status, want expectation) error {
	if status.Code != int32(want.code) || status.Reason != want.reason {
		return fmt.Errorf("status %d %s, want %d %s: %s", status.Code, status.Reason, want.code, want.reason, status.Message)
	}
	if diff := cmp.Diff(want.causes, causesOf(status)); diff != "" {
		return fmt.Errorf("causes (-want +got):\n%s", diff)
	}
	return nil
}

func compareObject(r *resource, got answer) error {
	var i item
	if err := json.Unmarshal(got.body, &i); err != nil {
		return fmt.Errorf("decoding %s: %w", got.body, err)
	}
	o, err := r.objectOf(i)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(r.chosen().String(), o.String()); diff != "" {
		return fmt.Errorf("object (-want +got):\n%s", diff)
	}
	return nil
}

func comparePage(w *World, r *resource, q query, got answer, want expectation) error {
	var decoded itemList
	if err := json.Unmarshal(got.body, &decoded); err != nil {
		return fmt.Errorf("decoding %s: %w", got.body, err)
	}
	items := []string{}
	for _, i := range decoded.Items {
		o, err := r.objectOf(i)
		if err != nil {
			return err
		}
		items = append(items, o.String())
	}
	wanted := expectPage(w, r, q, want.rule)
	if diff := cmp.Diff(wanted.items, items); diff != "" {
		return fmt.Errorf("items (-want +got):\n%s", diff)
	}
	if err := compareListRevision(w, decoded.Metadata.ResourceVersion, wanted.revision); err != nil {
		return err
	}
	if more := decoded.Metadata.Continue != ""; more != wanted.more {
		return fmt.Errorf("continue token is %q, want one: %t", decoded.Metadata.Continue, wanted.more)
	}
	if diff := cmp.Diff(wanted.remaining, decoded.Metadata.RemainingItemCount); diff != "" {
		return fmt.Errorf("remainingItemCount (-want +got):\n%s", diff)
	}
	if decoded.Kind != r.kind+"List" || decoded.APIVersion != r.groupVersion || strings.Contains(string(got.body), `"items":null`) {
		return fmt.Errorf("list of kind %s in %s, want %sList in %s", decoded.Kind, decoded.APIVersion, r.kind, r.groupVersion)
	}
	return nil
}

// compareListRevision wants exactly a revision, or for 0 the current one or a later one.
func compareListRevision(w *World, got string, want int64) error {
	revision, err := strconv.ParseInt(got, 10, 64)
	if err != nil {
		return fmt.Errorf("resourceVersion of the list: %w", err)
	}
	current := w.revisions[rvCurrent]
	if want != 0 && revision != want || want == 0 && (revision < current || revision >= w.revisions[rvFuture]) {
		return fmt.Errorf("resourceVersion of the list is %d, want %d (current is %d)", revision, want, current)
	}
	return nil
}
