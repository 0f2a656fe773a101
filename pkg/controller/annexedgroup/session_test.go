// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/digest"
)

func metadataOf(namespace, name, uid, version string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

// ledgerOf knows objects as a list of metadata shows them.
func ledgerOf(items ...metav1.PartialObjectMetadata) *ledger {
	l := newLedger()
	for i := range items {
		version := items[i].ResourceVersion
		l.put(keyOf(&items[i]), known{uid: items[i].UID, version: version, entry: digest.OfBytes([]byte(keyOf(&items[i]) + version))})
	}
	return l
}

func TestComparison(t *testing.T) {
	a, b, cluster := metadataOf("ns", "a", "1", "10"), metadataOf("ns", "b", "2", "11"), metadataOf("", "c", "3", "12")
	cases := map[string]struct {
		known       []metav1.PartialObjectMetadata
		pages       [][]metav1.PartialObjectMetadata
		wantChanged []string
		wantGone    []string
	}{
		"nothing on both sides": {},
		"the same objects": {
			known: []metav1.PartialObjectMetadata{a, b, cluster},
			pages: [][]metav1.PartialObjectMetadata{{a}, {b, cluster}},
		},
		"a new object": {
			known: []metav1.PartialObjectMetadata{a}, pages: [][]metav1.PartialObjectMetadata{{a, b}}, wantChanged: []string{"ns/b"},
		},
		"a changed object": {
			known: []metav1.PartialObjectMetadata{a, b}, pages: [][]metav1.PartialObjectMetadata{{a}, {metadataOf("ns", "b", "2", "20")}},
			wantChanged: []string{"ns/b"},
		},
		"an object that took the name of another": {
			known: []metav1.PartialObjectMetadata{a}, pages: [][]metav1.PartialObjectMetadata{{metadataOf("ns", "a", "9", "10")}},
			wantChanged: []string{"ns/a"},
		},
		"objects that are gone": {
			known: []metav1.PartialObjectMetadata{a, b, cluster}, pages: [][]metav1.PartialObjectMetadata{{a}}, wantGone: []string{"c", "ns/b"},
		},
		"the same name in another namespace": {
			known: []metav1.PartialObjectMetadata{a}, pages: [][]metav1.PartialObjectMetadata{{metadataOf("other", "a", "1", "10")}},
			wantChanged: []string{"other/a"}, wantGone: []string{"ns/a"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			comparison := ledgerOf(tc.known...).compare()
			for _, page := range tc.pages {
				comparison.add(page)
			}
			if diff := cmp.Diff(tc.wantChanged, comparison.changed); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantGone, comparison.gone()); diff != "" {
				t.Errorf("gone (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLedgerFollowsChanges expects the digests of a ledger to be those of one that knew the result from the start.
func TestLedgerFollowsChanges(t *testing.T) {
	followed := ledgerOf(metadataOf("ns", "a", "1", "10"), metadataOf("ns", "b", "2", "11"), metadataOf("ns", "c", "3", "12"))
	followed.remove("ns/a")
	followed.remove("ns/never-known")
	changed := metadataOf("ns", "b", "2", "20")
	followed.put("ns/b", known{uid: "2", version: "20", entry: digest.OfBytes([]byte("ns/b20"))})
	want := ledgerOf(changed, metadataOf("ns", "c", "3", "12"))
	if followed.content.String() != want.content.String() || followed.content.Objects != 2 {
		t.Errorf("content %s of %d objects, want %s of 2", followed.content, followed.content.Objects, want.content)
	}
	if followed.identity.String() != want.identity.String() {
		t.Errorf("identity %s, want %s", followed.identity, want.identity)
	}
	if again := ledgerOf(metadataOf("ns", "b", "2", "21"), metadataOf("ns", "c", "3", "12")); again.identity.String() == want.identity.String() {
		t.Error("another resource version has the same identity")
	}
}

func TestSessionBelongsToOneObject(t *testing.T) {
	group := func(uid string) *kubeannexv1alpha1.AnnexedGroup {
		return &kubeannexv1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: "lab.annex.test", UID: types.UID(uid)}}
	}
	var s sessions
	if s.get(group("1")) != nil {
		t.Error("there is a session before the first")
	}
	started := s.start(group("1"), []resource{{plural: "gadgets"}})
	if s.get(group("1")) != started {
		t.Error("the session was not found")
	}
	if s.get(group("2")) != nil {
		t.Error("an object of the same name has the session of the one before")
	}
	s.drop("lab.annex.test")
	if s.get(group("1")) != nil {
		t.Error("the session was not dropped")
	}
}

func TestChangedSince(t *testing.T) {
	gadgets := resource{definition: "gadgets.lab.annex.test", uid: "1", generation: 1}
	planets := resource{definition: "planets.lab.annex.test", uid: "2", generation: 3}
	edited, replaced, leaving := gadgets, planets, planets
	edited.generation, replaced.uid, leaving.deleting = 2, "9", true
	cases := map[string]struct {
		present []resource
		want    string
	}{
		"nothing changed": {[]resource{planets, gadgets}, ""},
		"a new schema":    {[]resource{edited, planets}, "gadgets.lab.annex.test was changed"},
		"a deletion":      {[]resource{gadgets}, "planets.lab.annex.test was deleted"},
		"another object":  {[]resource{gadgets, replaced}, "planets.lab.annex.test was replaced"},
		"an end":          {[]resource{gadgets, leaving}, "planets.lab.annex.test is being deleted"},
		"a new kind":      {[]resource{gadgets, planets, {definition: "x.lab.annex.test"}}, "x.lab.annex.test was created"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &session{resources: []resource{gadgets, planets}}
			if got := changedSince(s, tc.present); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	for key, want := range map[string][]string{"ns/a": {"ns", "a"}, "a": {"", "a"}, "ns/a:b": {"ns", "a:b"}} {
		namespace, name := splitKey(key)
		if got := []string{namespace, name}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
		object := metadataOf(namespace, name, "1", "1")
		if got := keyOf(&object); got != key {
			t.Errorf("got key %q, want %q", got, key)
		}
	}
}
