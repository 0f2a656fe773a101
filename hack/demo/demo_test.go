// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

func TestGeneratorIsSeeded(t *testing.T) {
	generate := func(seed uint64) []*unstructured.Unstructured {
		g := newGenerator(seed)
		return append(workflowSet(g, 60).objects, reportSet(g, 60).objects...)
	}
	one := generate(1)
	if diff := cmp.Diff(one, generate(1)); diff != "" {
		t.Errorf("the same seed gives other objects: %s", diff)
	}
	if cmp.Equal(one, generate(2)) {
		t.Error("another seed gives the same objects")
	}
	names := map[string]bool{}
	for _, object := range one {
		names[object.GetKind()+keyOf(object)] = true
	}
	if len(names) != len(one) {
		t.Errorf("%d objects have %d names", len(one), len(names))
	}
}

// TestLabelsSelectAFew checks the selectors that the LIST by label uses.
func TestLabelsSelectAFew(t *testing.T) {
	g := newGenerator(1)
	for _, set := range []*dataset{workflowSet(g, 1000), reportSet(g, 1000)} {
		selector, err := labels.Parse(set.label)
		if err != nil {
			t.Fatal(err)
		}
		matching := 0
		for _, object := range set.objects {
			if selector.Matches(labels.Set(object.GetLabels())) {
				matching++
			}
		}
		if matching < 10 || matching > 50 {
			t.Errorf("%d of 1000 %s match %s", matching, set.title(), set.label)
		}
	}
}

func TestSnapshotCompare(t *testing.T) {
	before := snapshot{"a/one": {uid: "1"}, "a/two": {uid: "2"}}
	cases := map[string]struct {
		after   snapshot
		changed map[string]string
		want    string
	}{
		"the same":                      {after: snapshot{"a/one": {uid: "1"}, "a/two": {uid: "2"}}},
		"an object is missing":          {after: snapshot{"a/one": {uid: "1"}}, want: "a/two is lost"},
		"an object is new":              {after: snapshot{"a/one": {uid: "1"}, "a/two": {uid: "2"}, "b": {}}, want: "b has appeared"},
		"an object has another UID":     {after: snapshot{"a/one": {uid: "3"}, "a/two": {uid: "2"}}, want: "a/one has UID 3 and had 1"},
		"an object has other content":   {after: snapshot{"a/one": {uid: "1", hash: [sha256.Size]byte{1}}, "a/two": {uid: "2"}}, want: "a/one is not what it was"},
		"a written object may differ":   {after: snapshot{"a/one": {uid: "1", hash: [sha256.Size]byte{1}}, "a/two": {uid: "2"}}, changed: map[string]string{"a/one": "7"}},
		"a written object keeps its ID": {after: snapshot{"a/one": {uid: "3"}, "a/two": {uid: "2"}}, changed: map[string]string{"a/one": "7"}, want: "a/one has UID 3 and had 1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := before.compare(tc.after, tc.changed); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestObserverCounts(t *testing.T) {
	object := func(uid string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": uid}}}
	}
	o := &observer{}
	o.OnAdd(object("1"), false)
	o.OnUpdate(object("1"), object("1"))
	o.OnUpdate(object("1"), object("2"))
	o.OnDelete(object("2"))
	want := sightings{added: 1, updated: 2, renamed: 1, deleted: 1}
	if got := o.sightings(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestIsList(t *testing.T) {
	for url, want := range map[string]bool{
		"https://h/apis/g/v1/things?limit=500":                         true,
		"https://h/apis/g/v1/things?watch=true&sendInitialEvents=true": true,
		"https://h/apis/g/v1/things?watch=true&resourceVersion=5":      false,
		"https://h/apis/g/v1/namespaces/a/things/one":                  false,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := isList(request, "things"); got != want {
			t.Errorf("isList(%s) is %t, want %t", url, got, want)
		}
	}
}

func TestTranscript(t *testing.T) {
	printed := strings.Split("1. First\n--------\nLoaded 300 in 1.5 s, held 957ms\nRESOURCE   SIZE\nthings     20.5 MiB\n\n2. Second\n---------\nlate\nlater", "\n")
	cases := map[string]struct {
		shown string
		want  string
	}{
		"everything":                         {shown: strings.Join(printed, "\n")},
		"other numbers":                      {shown: "1. First\n--------\nLoaded 41 in 20 s, held 1m2.5s"},
		"with an omission":                   {shown: "1. First\n--------\n...\n2. Second\n---------\n...\nlater"},
		"other columns":                      {shown: "RESOURCE SIZE\nthings    1.0 MiB"},
		"a line that was not printed":        {shown: "1. First\n--------\nStored 300 in 1.5 s", want: "Stored 300 in 1.5 s"},
		"an omission that is not marked":     {shown: "1. First\n--------\nRESOURCE   SIZE", want: "RESOURCE   SIZE"},
		"lines in another order":             {shown: "later\n...\nlate", want: "late"},
		"a line after the end of the output": {shown: "later\nlatest", want: "latest"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := firstDifference(strings.Split(tc.shown, "\n"), printed); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestReadmeHasATranscript(t *testing.T) {
	markdown := "text\n```console\n$ make run\nno\n```\n```console\n" + transcriptCommand + "\n" + strings.Repeat("line\n", 10) + "```\nend"
	lines, err := transcript(markdown)
	if err != nil || len(lines) != 10 {
		t.Errorf("got %d lines, %v", len(lines), err)
	}
	if _, err := transcript("```console\n$ make run\n```"); err == nil {
		t.Error("a file without a transcript is accepted")
	}
}
