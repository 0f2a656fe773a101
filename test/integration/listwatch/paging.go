// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxPages ends a test whose pages do not.
const maxPages = 20

// CheckPages demands that the pages of a list, one object each, hold together
// what a list without limit holds.
func CheckPages(t *testing.T, w *World) {
	t.Helper()
	for _, r := range w.resources {
		for _, s := range r.selectors() {
			if s.unsupported {
				continue
			}
			params := url.Values{"limit": {"1"}}
			if s.label != "" {
				params.Set("labelSelector", s.label)
			}
			if s.field != "" {
				params.Set("fieldSelector", s.field)
			}
			want := expectPages(w, r, s)
			if diff := cmp.Diff(want, w.allPages(t, r, r.path(s.namespace), params)); diff != "" {
				t.Errorf("%s by %s, page by page (-want +got):\n%s", r.name, s.name, diff)
			}
		}
	}
}

// expectPages returns what pages of one object hold together: everything that
// matches, but for one fault of upstream's that annex shares. A namespace given
// as a field narrows the first page only (storage.SelectionPredicate ignores it
// when there is a token), while the token is relative to the narrowed range. So
// the second page starts at a key that lacks the namespace, and what sorts
// before it is lost.
func expectPages(w *World, r *resource, s selector) []string {
	all := filter(r.journal.at(w.revisions[rvCurrent]), s.matches)
	if s.prefix == "" || s.key != "" {
		return texts(all)
	}
	wrongStart := func(o object) bool { return o.key() > all[0].name }
	return texts(append(all[:1:1], filter(all[1:], wrongStart)...))
}

func (w *World) allPages(t *testing.T, r *resource, path string, params url.Values) []string {
	t.Helper()
	found := []string{}
	for range maxPages {
		var page itemList
		if err := w.must(t.Context(), http.MethodGet, path+"?"+params.Encode(), nil, &page); err != nil {
			t.Error(err)
			return found
		}
		for _, i := range page.Items {
			o, err := r.objectOf(i)
			if err != nil {
				t.Error(err)
			}
			found = append(found, o.String())
		}
		if page.Metadata.Continue == "" {
			return found
		}
		params.Set("continue", page.Metadata.Continue)
	}
	t.Errorf("%s has no end", path)
	return found
}

// CheckExpiredToken goes on with the token that comes with the refusal of a
// compacted one: it leads on from the same key, in what is there now.
func CheckExpiredToken(t *testing.T, w *World) {
	t.Helper()
	for _, r := range w.resources {
		q := query{verb: list, rv: rvUnset, token: tokenCompacted, selector: r.selectors()[0]}
		got, err := w.do(t.Context(), http.MethodGet, q.url(w, r), nil)
		if err != nil {
			t.Fatal(err)
		}
		var status metav1.Status
		if err := json.Unmarshal(got.body, &status); err != nil || status.Reason != metav1.StatusReasonExpired {
			t.Fatalf("a compacted token is answered by %s (%v), want Expired", got.body, err)
		}
		q.token = tokenLatest
		want := expectPage(w, r, q, rule{content: restLatest})
		if diff := cmp.Diff(want.items, w.allPages(t, r, r.path(""), url.Values{"continue": {status.Continue}})); diff != "" {
			t.Errorf("%s, going on after Expired (-want +got):\n%s", r.name, diff)
		}
	}
}
