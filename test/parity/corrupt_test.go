// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const unsafeDelete = "ignoreStoreReadErrorWithClusterBreakingPotential=true"

// broken are values that are no custom resource.
func broken() map[string]string {
	return map[string]string{"broken": `{"broken`, "empty": ``, "kindless": `{"apiVersion":"lab.annex.test/v1"}`}
}

// TestUndecodableObject reproduces kubernetes/kubernetes 69579: a broken value in etcd fails reads
// of its kind with an error that names the key, leaves other kinds alone, survives a restart and
// can be removed. It asks a replica that it may restart, and the host for the same; the aggregator
// would add nothing.
func TestUndecodableObject(t *testing.T) {
	compareAt(t, []*target{suite.hostTarget, suite.pairTargets[0]}, func(s *session) {
		s.install("cracks", definition("cracks", "Crack", `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, ""))
		for _, name := range append(sortedKeys(broken()), "after", "before") {
			s.do("create "+name, http.MethodPost, s.of("cracks"), crack(name)).want(http.StatusCreated)
		}
		since := s.peek(http.MethodGet, s.of("cracks")).version()
		client := s.etcdClient()
		for name, value := range broken() {
			if _, err := client.Put(s.t.Context(), s.etcdKey("cracks", name), value); err != nil {
				s.t.Fatal(err)
			}
		}
		// A watch must not make up an event of a value that it cannot read.
		watch := s.ask(s.target.api, "WATCH", http.MethodGet, s.of("cracks")+"?watch=1&timeoutSeconds=2&resourceVersion="+since, "")
		if strings.Contains(string(watch.body), "DELETED") || strings.Contains(string(watch.body), "MODIFIED") {
			s.t.Errorf("the watch shows %s", watch.body)
		}
		s.t.Logf("a watch is answered with %d %s", watch.code, watch.body)
		for _, name := range sortedKeys(broken()) {
			s.checkBroken(name)
		}
		s.do("GET of a sound one", http.MethodGet, s.of("cracks")+"/before", "").want(http.StatusOK)
		s.do("LIST of a page from etcd", http.MethodGet, s.of("cracks")+"?limit=10", "").
			wantStatus(http.StatusInternalServerError, metav1.StatusReasonStoreReadError, s.etcdKeyShown("broken"))
		s.do("create another", http.MethodPost, s.of("cracks"), crack("new")).want(http.StatusCreated)
		s.do("other kinds", http.MethodGet, definitions+"?limit=1&fieldSelector=metadata.name%3Dnone", "").want(http.StatusOK)
		if s.target == suite.pairTargets[0] {
			s.checkBrokenAfterRestart()
		}
		s.removeBroken()
	})
}

func crack(name string) string { return object("Crack", name, `{"a":1}`) }

// etcdKeyShown is the key as the answers show it.
func (s *session) etcdKeyShown(name string) string { return s.namespace + "/" + name }

// checkBroken uses one broken object in every way.
func (s *session) checkBroken(name string) {
	s.t.Helper()
	path := s.of("cracks") + "/" + name
	s.do("GET "+name, http.MethodGet, path, "").wantStatus(http.StatusInternalServerError, metav1.StatusReasonInternalError, s.etcdKeyShown(name))
	put := strings.Replace(crack(name), `"metadata":{`, `"metadata":{"resourceVersion":"5",`, 1)
	s.do("PUT "+name, http.MethodPut, path, put).wantFailure()
	s.do("PATCH "+name, http.MethodPatch, path, `{"spec":{"a":2}}`, "Content-Type", mergePatch).wantFailure()
	s.do("DELETE "+name, http.MethodDelete, path, "").wantFailure()
	s.do("create again "+name, http.MethodPost, s.of("cracks"), crack(name)).wantStatus(http.StatusConflict, metav1.StatusReasonAlreadyExists)
	s.do("unsafe, with a precondition "+name, http.MethodDelete, path, `{"preconditions":{"uid":"7"},"ignoreStoreReadErrorWithClusterBreakingPotential":true}`).
		wantStatus(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
}

func (r *response) wantFailure() {
	r.t.Helper()
	if r.code < http.StatusInternalServerError {
		r.t.Errorf("%s: answered %d: %.300s", r.name, r.code, r.body)
	}
}

// checkBrokenAfterRestart restarts the replica: the watch cache of the broken
// kind cannot be filled, all others can, and the server is ready.
func (s *session) checkBrokenAfterRestart() {
	s.t.Helper()
	if err := suite.pair.Replicas[0].Restart(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	ask := func(path string) *response {
		return s.ask(s.target.api, path+" after the restart", http.MethodGet, path, "")
	}
	ask("/readyz").want(http.StatusOK)
	ask(definitions).want(http.StatusOK)
	ask(s.of("cracks") + "/before").want(http.StatusOK)
	ask(s.of("cracks") + "?limit=10").wantFailure()
	ask(s.of("cracks") + "/broken").wantFailure()
}

// removeBroken deletes the broken objects and checks that the kind is whole again.
func (s *session) removeBroken() {
	s.t.Helper()
	s.do("unsafe of a sound one", http.MethodDelete, s.of("cracks")+"/before?"+unsafeDelete, "").wantStatus(http.StatusConflict, metav1.StatusReasonConflict)
	for _, name := range sortedKeys(broken()) {
		path := s.of("cracks") + "/" + name
		s.do("unsafe, dry "+name, http.MethodDelete, path+"?dryRun=All&"+unsafeDelete, "")
		s.do("unsafe "+name, http.MethodDelete, path+"?"+unsafeDelete, "").want(http.StatusOK)
		s.do("gone "+name, http.MethodGet, path, "").wantStatus(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	s.until("the list to be whole again", func() bool {
		return s.peek(http.MethodGet, s.of("cracks")+"?resourceVersion=0").code == http.StatusOK
	})
	s.wantNames("whole again", s.of("cracks"), "after", "before", "new")
	s.do("create again", http.MethodPost, s.of("cracks"), crack("broken")).want(http.StatusCreated)
}

// TestOddText reproduces kubernetes/kubernetes 69579: text of any alphabet is stored and selected
// as it was sent, and bytes that are no text are treated alike.
func TestOddText(t *testing.T) {
	texts := map[string]string{
		"emoji":                 `"🛰️👩‍🚀"`,
		"right to left":         `"שלום مرحبا \u202ex"`,
		"null character":        `"a\u0000b"`,
		"control characters":    `"\u0001\t\n\u007f\u0080"`,
		"lone surrogate":        `"\ud800"`,
		"surrogate pair":        `"\ud83d\ude00"`,
		"wrong order of pair":   `"\ude00\ud83d"`,
		"byte order mark":       `"` + "\ufeff" + `x"`,
		"HTML":                  `"<a href=\"x\">&amp;</a>"`,
		"line separators":       `"\u2028\u2029"`,
		"decomposed":            `"e\u0301"`,
		"composed":              `"\u00e9"`,
		"no UTF-8":              "\"a\xff\xfeb\"",
		"overlong":              "\"\xc0\xaf\"",
		"cut rune":              "\"\xf0\x9f\x9b\"",
		"encoded surrogate":     "\"\xed\xa0\x80\"",
		"backslash and solidus": `"\\\/"`,
		"bad escape":            `"\x41"`,
		"comma, equals":         `"a,b=c\\d"`,
	}
	compare(t, func(s *session) {
		i := 0
		for _, name := range sortedKeys(texts) {
			i++
			gadgetName := fmt.Sprintf("g-%02d", i)
			created := s.do("create with "+name, http.MethodPost, s.gadgets(), gadget(gadgetName, `{"color":`+texts[name]+`}`))
			if created.code != http.StatusCreated {
				created.wantStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest)
				continue
			}
			color, ok := created.object().Object["spec"].(map[string]any)["color"].(string)
			if !ok {
				s.t.Fatalf("%s: no colour", name)
			}
			got := s.do("GET "+name, http.MethodGet, s.gadgets()+"/"+gadgetName, "").want(http.StatusOK)
			if string(got.body) != string(created.body) {
				s.t.Errorf("%s: created %s, read %s", name, created.body, got.body)
			}
			for _, version := range []string{"", "&resourceVersion=0"} {
				selector := "?fieldSelector=" + escapeField("spec.color", color) + version
				list := s.do("select "+name+version, http.MethodGet, s.gadgets()+selector, "")
				if list.code == http.StatusOK && version == "" && !strings.Contains(string(list.body), gadgetName) {
					s.t.Errorf("%s: the selector %s does not find %s", name, selector, gadgetName)
				}
			}
			s.do("YAML of "+name, http.MethodGet, s.gadgets()+"/"+gadgetName, "", "Accept", "application/yaml")
		}
		// Keys of maps: planets have a free form.
		path := fixturePath + "/planets"
		for _, name := range sortedKeys(texts) {
			s.do("planet with key of "+name, http.MethodPost, path+"?dryRun=All", object("Planet", "p", `{`+texts[name]+`:1}`))
		}
	})
}
