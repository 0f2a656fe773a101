// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubeannex/annex/test/env"
)

// page asks for a page of gadgets and keeps what has to be equal everywhere of it.
func (s *session) page(name string, parameters url.Values) *response {
	s.t.Helper()
	answer := s.ask(s.target.api, name, http.MethodGet, s.gadgets()+"?"+parameters.Encode(), "")
	body := normalise(answer.body)
	if answer.code == http.StatusOK {
		body = fmt.Sprint(answer.itemNames(), answer.more() != "", answer.remaining())
	}
	s.steps = append(s.steps, step{Name: name, Code: answer.code, Body: body})
	return answer
}

// more is the continue token of a list or of a refusal.
func (r *response) more() string { return r.metadata("continue") }

// remaining is the count of items on further pages, "" where none is given.
func (r *response) remaining() string { return r.metadata("remainingItemCount") }

func (r *response) metadata(field string) string {
	r.t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(r.object().Object, "metadata", field)
	if err != nil || !found {
		return ""
	}
	return fmt.Sprint(value)
}

// union reads a list to its end, page by page.
func (s *session) union(name string, first url.Values) []string {
	s.t.Helper()
	names, parameters := []string{}, maps.Clone(first)
	for number := range stockSize + 1 {
		page := s.page(fmt.Sprintf("%s, page %d", name, number), parameters).want(http.StatusOK)
		names = append(names, page.itemNames()...)
		if page.more() == "" {
			return names
		}
		parameters.Del("resourceVersion") // with a token, only 0 is allowed
		parameters.Set("continue", page.more())
	}
	s.t.Errorf("%s has no end", name)
	return names
}

// TestSelectiveListsAtAnyVersion reproduces kubernetes/kubernetes 60507 and CentaurusInfra/arktos
// 516: a list from the cache lacked what the same list from etcd had. Whatever the resource version,
// the limit and the selectors are, the pages together are what matches object by object, in order.
func TestSelectiveListsAtAnyVersion(t *testing.T) {
	compareIndexed(t, func(s *session) {
		for name, wanted := range orderedSelections() {
			want := wanted.names(s.t)
			for _, version := range []string{"", "0", "now"} {
				for _, limit := range []string{"0", "7", "500"} {
					what := fmt.Sprintf("%s, resourceVersion=%s limit=%s", name, version, limit)
					parameters := wanted.parameters()
					parameters.Set("resourceVersion", s.versionOf(version))
					parameters.Set("limit", limit)
					if diff := cmp.Diff(want, s.union(what, parameters)); diff != "" {
						s.t.Errorf("%s (-want +got):\n%s", what, diff)
					}
				}
			}
			s.checkRefused(name, wanted)
		}
	}, teamIndex, colorIndex, "")
}

// versionOf is a resource version, which is that of the list for "now".
func (s *session) versionOf(version string) string {
	if version == "now" {
		return s.now()
	}
	return version
}

// checkRefused asks for what contradicts itself.
func (s *session) checkRefused(name string, wanted selection) {
	s.t.Helper()
	exact := wanted.parameters()
	exact.Set("resourceVersion", "0")
	exact.Set("resourceVersionMatch", "Exact")
	s.page(name+", exactly 0", exact).wantStatus(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	both := wanted.parameters()
	both.Set("resourceVersion", s.now())
	both.Set("continue", token(s.t, 1, "g-00010\x00"))
	s.page(name+", a token and a version", both).wantStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest)
}

// token is a continue token (k8s.io/apiserver pkg/storage/continue.go).
func token(t *testing.T, revision int64, start string) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": revision, "start": start})
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// TestExpiredTokenWithSelectors reproduces kubernetes/kubernetes 67284 and kubernetes-client/python
// 953: a long list died with Expired and there was no way on. The refusal has a token that leads on.
func TestExpiredTokenWithSelectors(t *testing.T) {
	compareIndexed(t, func(s *session) {
		old := s.forget()
		for name, wanted := range orderedSelections() {
			names := wanted.names(s.t)
			if len(names) < 3 {
				continue
			}
			parameters := wanted.parameters()
			parameters.Set("limit", strconv.Itoa(len(names)/2))
			first := s.page(name+", the first page", parameters).want(http.StatusOK)
			got := first.itemNames()
			if first.more() == "" {
				s.t.Fatalf("%s: no token after %d of %d objects", name, len(got), len(names))
			}
			parameters.Set("continue", token(s.t, old, got[len(got)-1]+"\x00"))
			refused := s.page(name+", an expired token", parameters)
			refused.wantStatus(http.StatusGone, metav1.StatusReasonExpired)
			if refused.more() == "" {
				s.t.Fatalf("%s: the refusal has no token: %s", name, refused.body)
			}
			parameters.Set("continue", refused.more())
			if diff := cmp.Diff(names[len(got):], s.union(name+", on from there", parameters)); diff != "" {
				s.t.Errorf("%s, after the refusal (-want +got):\n%s", name, diff)
			}

			parameters.Set("continue", token(s.t, -1, "../"+got[0]))
			s.page(name+", a token with a way out", parameters).wantStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest)
			// Keys in a token are relative to the list, so one of another list may pass.
			answer := s.ask(s.target.api, name+", a token elsewhere", http.MethodGet, fixturePath+"/planets?"+url.Values{
				"labelSelector": {wanted.labels}, "continue": {first.more()}, "limit": {"5"}}.Encode(), "")
			s.steps = append(s.steps, step{Name: answer.name, Code: answer.code})
		}
	}, teamIndex, colorIndex, "")
}

// forget has etcd forget all but the latest state and returns a resource version from
// before: older than the caches, which began after the definition was there.
func (s *session) forget() int64 {
	s.t.Helper()
	crd := s.ask(s.target.crds, "GET the CRD", http.MethodGet, definitions+"/gadgets."+env.FixtureGroup, "").want(http.StatusOK)
	old, err := strconv.ParseInt(crd.version(), 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	compactEtcd(s.t, s.target)
	return old - 1
}

func compactEtcd(t *testing.T, target *target) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{target.etcd.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // nothing is lost with it
	latest, err := client.Get(t.Context(), "any key")
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Compact(t.Context(), latest.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !strings.Contains(err.Error(), "has been compacted") { // by another target of the same etcd
		t.Fatal(err)
	}
}

// TestRemainingItemCount reproduces kubernetes/kubernetes 101463 and kubernetes-client/javascript
// 678: the count is exact without selectors and missing with any, even where an index could tell it.
func TestRemainingItemCount(t *testing.T) {
	compareIndexed(t, func(s *session) {
		for name, wanted := range orderedSelections() {
			matching := len(wanted.names(s.t))
			for _, version := range []string{"", "now"} {
				// Annex decides itself about a page that takes all that an index offers.
				for _, limit := range []int{5, matching - 1, matching} {
					what := fmt.Sprintf("%s, resourceVersion=%s limit=%d", name, version, limit)
					parameters := wanted.parameters()
					parameters.Set("resourceVersion", s.versionOf(version))
					parameters.Set("limit", strconv.Itoa(max(limit, 1)))
					want := ""
					if wanted == (selection{}) && limit < stockSize {
						want = strconv.Itoa(stockSize - limit)
					}
					if got := s.page(what, parameters).want(http.StatusOK).remaining(); got != want {
						s.t.Errorf("%s: remainingItemCount is %q, want %q", what, got, want)
					}
				}
			}
		}
	}, teamIndex, colorIndex, "")
}
