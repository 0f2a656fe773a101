// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package digest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func object(name, version string, size int64) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": name, "resourceVersion": version},
		"spec":     map[string]any{"size": size, "color": "red"},
	}
}

func entryOf(t *testing.T, o map[string]any) Entry {
	t.Helper()
	entry, err := OfObject(o)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

func setOf(t *testing.T, objects ...map[string]any) Set {
	t.Helper()
	var set Set
	for _, o := range objects {
		set.Add(entryOf(t, o))
	}
	return set
}

func TestSetsAreCompared(t *testing.T) {
	base := setOf(t, object("a", "1", 1), object("b", "2", 1))
	cases := map[string]struct {
		other Set
		equal bool
	}{
		"another order":                {setOf(t, object("b", "2", 1), object("a", "1", 1)), true},
		"other resource versions":      {setOf(t, object("a", "8", 1), object("b", "9", 1)), true},
		"one object is missing":        {setOf(t, object("a", "1", 1)), false},
		"one object is there twice":    {setOf(t, object("a", "1", 1), object("b", "2", 1), object("b", "2", 1)), false},
		"one field differs":            {setOf(t, object("a", "1", 1), object("b", "2", 2)), false},
		"two objects swap their value": {setOf(t, object("a", "1", 2), object("b", "2", 1)), false},
		"nothing":                      {Set{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.other.String() == base.String(); got != tc.equal {
				t.Errorf("digests %s and %s: equal is %t, want %t", tc.other, base, got, tc.equal)
			}
		})
	}
}

func TestChangesAreFollowed(t *testing.T) {
	set := setOf(t, object("a", "1", 1), object("b", "2", 1))
	set.Remove(entryOf(t, object("a", "1", 1)))
	set.Add(entryOf(t, object("a", "3", 7)))
	if diff := cmp.Diff(setOf(t, object("a", "3", 7), object("b", "2", 1)).String(), set.String()); diff != "" {
		t.Errorf("digest (-want +got):\n%s", diff)
	}
	if set.Objects != 2 {
		t.Errorf("got %d objects, want 2", set.Objects)
	}
}

func TestObjectIsNotChanged(t *testing.T) {
	got := object("a", "1", 1)
	entryOf(t, got)
	if diff := cmp.Diff(object("a", "1", 1), got); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
}
