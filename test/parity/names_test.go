// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/test/env"
)

// TestGeneratedNames reproduces kubernetes/kubernetes 115489, 122887 and 130903: a base is cut to
// 58 characters and gets five more.
func TestGeneratedNames(t *testing.T) {
	compare(t, func(s *session) {
		generate := func(base string) string {
			return fmt.Sprintf(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"generateName":%q}}`, base)
		}
		for _, length := range []int{1, 57, 58, 59, 63, 253} {
			base := strings.Repeat("b", length)
			name := fmt.Sprintf("base of %d", length)
			got := s.ask(s.target.api, name, http.MethodPost, s.gadgets(), generate(base)).want(http.StatusCreated)
			made := got.object().GetName()
			if !strings.HasPrefix(made, base[:min(length, 58)]) || len(made) != min(length, 58)+5 {
				s.t.Errorf("base of %d characters became %q", length, made)
			}
			got.body = []byte(strings.ReplaceAll(string(got.body), made, "made"))
			s.keep(got)
		}
		for _, base := range []string{"Upper-", "under_", "-dash", ".dot", "a..b-", "sl/ash", strings.Repeat("b", 300)} {
			s.ask(s.target.api, "base "+base, http.MethodPost, s.gadgets(), generate(base))
			got := s.ask(s.target.api, "base "+base, http.MethodPost, s.gadgets(), generate(base))
			if len(base) < 300 {
				got.want(http.StatusUnprocessableEntity)
			}
			s.steps = append(s.steps, step{Name: "base " + base, Code: got.code})
		}
		s.do("name and base", http.MethodPost, s.gadgets(), `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"n","generateName":"g-"}}`).want(http.StatusCreated).wantField("n", "metadata", "name")
		taken := `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"n","generateName":"g-"}}`
		s.do("name and base, taken", http.MethodPost, s.gadgets(), taken).wantStatus(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		var group errgroup.Group
		group.SetLimit(8)
		for range 150 {
			group.Go(func() error { return s.mustWrite(http.MethodPost, s.gadgets(), generate("many-"), jsonType) })
		}
		if err := group.Wait(); err != nil {
			s.t.Error(err)
		}
		list := s.peek(http.MethodGet, s.gadgets()).want(http.StatusOK)
		if made := strings.Count(string(list.body), `"name":"many-`); made != 150 {
			s.t.Errorf("%d gadgets with a generated name, want 150", made)
		}
	})
}

// TestOddNames demands that names are DNS subdomains of at most 253 characters.
func TestOddNames(t *testing.T) {
	valid := []string{"a", "a.b", "a-b", "0", "a.b.c", "1.2", strings.Repeat("n", 253), strings.Repeat("a.", 126) + "a"}
	invalid := []string{
		strings.Repeat("n", 254), "Upper", "under_score", "..", ".", "a..b", "-a", "a-", ".a", "a.", "a/b", "a b", "a%2Fb", "ü",
		"a\u0000b", "a\nb", "naïve", "a:b", "*",
	}
	compare(t, func(s *session) {
		for _, name := range valid {
			path := s.gadgets() + "/" + name
			s.do("create "+name, http.MethodPost, s.gadgets(), gadget(name, `{}`)).want(http.StatusCreated)
			s.do("GET "+name, http.MethodGet, path, "").want(http.StatusOK).wantField(name, "metadata", "name")
			s.do("apply "+name, http.MethodPatch, path+"?fieldManager=m", gadget(name, `{"size":1}`), "Content-Type", applyPatch).want(http.StatusOK)
		}
		for _, name := range invalid {
			body := fmt.Sprintf(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":%s}}`, quoted(name))
			s.do("create "+name, http.MethodPost, s.gadgets(), body).wantStatus(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.name")
		}
		for _, name := range []string{"Upper", "a%2Fb", "a%252Fb", "%00", "%FF", url.PathEscape("ü"), "a%20b", "%2e", "%2e%2e", "a;b", "a:b"} {
			s.do("GET "+name, http.MethodGet, s.gadgets()+"/"+name, "")
			s.do("DELETE "+name, http.MethodDelete, s.gadgets()+"/"+name, "")
			s.do("apply "+name, http.MethodPatch, s.gadgets()+"/"+name+"?fieldManager=m", `{"apiVersion":"lab.annex.test/v1","kind":"Gadget"}`, "Content-Type", applyPatch)
		}
		var want []string
		want = append(want, valid...)
		slices.Sort(want)
		s.wantNames("all", s.gadgets(), want...)
	})
}

// quoted is a JSON string: unlike Go's, it has no \x escapes.
func quoted(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < ' ' {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return `"` + b.String() + `"`
}

// wantNames demands the sorted names of a list, read in pages of three and at once.
func (s *session) wantNames(name, path string, want ...string) {
	s.t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	for _, limit := range []int{0, 3} {
		var got []string
		for next := ""; ; {
			page := s.peek(http.MethodGet, fmt.Sprintf("%s%slimit=%d&continue=%s", path, separator, limit, next)).want(http.StatusOK)
			for _, item := range items(page) {
				if fields, ok := item.(map[string]any); ok {
					got = append(got, fmt.Sprint(fields["metadata"].(map[string]any)["name"]))
				}
			}
			next, _ = page.object().Object["metadata"].(map[string]any)["continue"].(string)
			if next == "" {
				break
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			s.t.Errorf("%s: names %q, want %q", name, got, want)
		}
	}
}

// TestPrefixesDoNotLeak demands that a namespace or name that begins like another is not part of it.
func TestPrefixesDoNotLeak(t *testing.T) {
	// Extensions of the namespace that sort before and after the separator of keys.
	extensions := []string{"1", "-x", "0"}
	for _, extension := range extensions {
		if err := env.EnsureNamespace(t.Context(), suite.hostTarget.api.config, namespaceOf(t)+extension); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, func(s *session) {
		names := []string{"a", "a-b", "a.b", "aa"}
		others := *s
		for _, namespace := range append([]string{""}, extensions...) {
			others.namespace = s.namespace + namespace
			for _, name := range names {
				others.do("create "+name+namespace, http.MethodPost, others.gadgets(), gadget(name, `{"color":"red"}`)).want(http.StatusCreated)
			}
		}
		s.steps = others.steps
		for _, query := range []string{"", "?resourceVersion=0", "?fieldSelector=spec.color%3Dred"} {
			s.wantNames("namespace"+query, s.gadgets()+query, names...)
		}
		s.wantNames("by name", s.gadgets()+"?fieldSelector=metadata.name%3Da", "a")
		s.wantNames("everywhere by name", fixturePath+"/gadgets?fieldSelector=metadata.name%3Da-b,metadata.namespace%3D"+s.namespace, "a-b")
		watch := s.do("watch", http.MethodGet, s.gadgets()+"?watch=1&timeoutSeconds=1&resourceVersion=0", "").want(http.StatusOK)
		for _, extension := range extensions {
			if strings.Contains(string(watch.body), s.namespace+extension+`"`) {
				s.t.Errorf("the watch of %s shows gadgets of %s", s.namespace, s.namespace+extension)
			}
		}
		s.do("delete a", http.MethodDelete, s.gadgets()+"/a", "").want(http.StatusOK)
		s.wantNames("after one", s.gadgets(), "a-b", "a.b", "aa")
		s.do("delete all", http.MethodDelete, s.gadgets(), "").want(http.StatusOK)
		s.wantNames("after all", s.gadgets())
		for _, extension := range extensions {
			s.wantNames("neighbour "+extension, fixturePath+"/namespaces/"+s.namespace+extension+"/gadgets", names...)
		}
	})
}
