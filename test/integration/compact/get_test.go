// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// single are paths of one object, by name.
func single() map[string]string {
	paths := map[string]string{
		"gadget": gadgets("v1", small) + "/g-01", "gadget without fields": gadgets("v1", small) + "/g-02", "old gadget": gadgets("v1beta1", small) + "/g-01",
		"fat gadget": gadgets("v1", large) + "/fat-0", "old fat gadget": gadgets("v1beta1", large) + "/fat-1", "shift": shifts() + "/s-0",
		"status": gadgets("v1", small) + "/g-01/status", "old status": gadgets("v1beta1", small) + "/g-00/status",
		"scale": gadgets("v1", small) + "/g-01/scale", "scale without fields": gadgets("v1", small) + "/g-02/scale",
		"missing": gadgets("v1", small) + "/nobody", "missing in another namespace": gadgets("v1", "empty") + "/g-01", "malformed name": planets + "/No Name%25",
		"no status": planets + "/unicode/status", "planet": planets + "/html", "no subresource": gadgets("v1", small) + "/g-01/logs", "trailing slash": planets + "/unicode/",
	}
	return paths
}

// TestGet meets every form of an object with every way to ask for it.
func TestGet(t *testing.T) {
	w := shared
	w.mustSettle(t)
	accepted, packed, formed, path := accepts("PartialObjectMetadata"), packings(), forms(), single()
	versioned := map[string]string{
		"newest": "", "any": "&resourceVersion=0", "now": "&resourceVersion=" + fmt.Sprint(w.etcd.Revision()), "then": "&resourceVersion=" + fmt.Sprint(w.history),
		"no number": "&resourceVersion=x", "unknown parameter": "&colour=red&limit=x",
	}
	found := 0
	for _, c := range pairwise(sortedKeys(accepted), sortedKeys(path), sortedKeys(formed), sortedKeys(packed), sortedKeys(versioned)) {
		form := formed[c[2]]
		r := get(path[c[1]]+"?"+strings.TrimPrefix(form.query+versioned[c[4]], "&"), "Accept", accepted[c[0]], "Accept-Encoding", packed[c[3]])
		if form.agent != "" {
			r.header["User-Agent"] = form.agent
		}
		if w.same(t, r).code == http.StatusOK {
			found++
		}
	}
	for name := range hardValues() {
		for _, accept := range served("PartialObjectMetadata") {
			w.same(t, get(planets+"/"+name, "Accept", accept))
		}
		w.same(t, get(planets+"/"+name+"?pretty=1&resourceVersion=0", "Accept-Encoding", "gzip"))
	}
	for _, path := range single() {
		w.same(t, get(path, "Accept", as(jsonType, "PartialObjectMetadataList", "v1")))
		w.same(t, request{method: http.MethodHead, path: path})
	}
	t.Logf("%d objects are served", found)
}

// TestSizeFromWhichAnswersArePacked looks at answers of that size, and a byte to both sides.
func TestSizeFromWhichAnswersArePacked(t *testing.T) {
	w := shared
	const threshold = 128 << 10
	list := gadgets("v1", "threshold")
	path := list + "/edge"
	if err := w.plain.must(t.Context(), request{method: http.MethodPost, path: list, body: edgeGadget(1)}); err != nil {
		t.Fatal(err)
	}
	for name, question := range map[string]request{
		"list": get(list + "?x"), "object": get(path + "?x"), "pretty list": get(list + "?pretty=1"), "list in YAML": get(list+"?x", "Accept", yamlType),
		"page": get(list + "?limit=5"), "list from the cache": get(list + "?resourceVersion=0"),
	} {
		t.Run(name, func(t *testing.T) {
			w.replaceEdge(t, path, 1000)
			base := len(w.same(t, question).body)
			question.header["Accept-Encoding"] = "gzip"
			packed := 0
			for _, aim := range []int{threshold - 1, threshold, threshold + 1, threshold + 2} {
				w.replaceEdge(t, path, 1000+aim-base)
				got := w.same(t, question)
				if len(got.body) != aim && name != "list in YAML" {
					t.Errorf("the answer has %d bytes, want %d", len(got.body), aim)
				}
				if got.zipped {
					packed++
				}
			}
			if packed == 0 || packed == 4 {
				t.Errorf("%d of 4 answers are packed, want some of them", packed)
			}
		})
	}
	if err := w.plain.must(t.Context(), request{method: http.MethodDelete, path: path}); err != nil {
		t.Fatal(err)
	}
}

func edgeGadget(note int) string {
	return fmt.Sprintf(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"edge","annotations":{"note":%q}}}`, strings.Repeat("x", note))
}

// replaceEdge gives an object a note of a length, and waits until both servers know. It is in the metadata, so that the generation stays.
func (w *world) replaceEdge(t *testing.T, path string, note int) {
	t.Helper()
	err := w.compact.must(t.Context(), request{
		method: http.MethodPatch, path: path, body: fmt.Sprintf(`{"metadata":{"annotations":{"note":%q}}}`, strings.Repeat("x", note)),
		header: map[string]string{"Content-Type": "application/merge-patch+json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range w.sides() {
		if err := w.settleOne(t.Context(), s, gadgets("v1", "threshold")); err != nil {
			t.Fatal(err)
		}
	}
}
