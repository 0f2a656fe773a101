// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// TestJournalSeesWhatIsWrong proves that a lost or reverted write is found.
func TestJournalSeesWhatIsWrong(t *testing.T) {
	object := func(uid string, seq int64) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": seq}}}
		o.SetUID(types.UID(uid))
		return o
	}
	cases := map[string]struct {
		entry  entry
		object *unstructured.Unstructured
		want   string
	}{
		"as acknowledged":                    {entry{exists: true, uid: "u", seq: 3}, object("u", 3), ""},
		"lost":                               {entry{exists: true, uid: "u", seq: 3}, nil, "is lost"},
		"reverted":                           {entry{exists: true, uid: "u", seq: 3}, object("u", 2), "holds write 2, acknowledged was 3"},
		"a write that nobody made":           {entry{exists: true, uid: "u", seq: 3}, object("u", 4), "holds write 4, acknowledged was 3"},
		"created again":                      {entry{exists: true, uid: "u", seq: 3}, object("v", 3), "has UID v"},
		"deleted and gone":                   {entry{uid: "u", seq: 3}, nil, ""},
		"deleted and back":                   {entry{uid: "u", seq: 3}, object("u", 3), "is back"},
		"a failed write did happen":          {entry{exists: true, uid: "u", seq: 3, doubtful: true}, object("u", 4), ""},
		"a failed deletion did happen":       {entry{exists: true, uid: "u", seq: 3, doubtful: true}, nil, ""},
		"reverted further than a failed one": {entry{exists: true, uid: "u", seq: 3, doubtful: true}, object("u", 2), "holds write 2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.entry.path = []string{"spec", "size"}
			got := tc.entry.problem(tc.object)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestJournalKeepsErrors(t *testing.T) {
	j := newJournal()
	e := &entry{gvr: schema.GroupVersionResource{Resource: "gadgets"}, namespace: "n", name: "a"}
	j.record(e, 1, nil, func() { e.exists = true })
	j.record(e, 1, errors.New("refused"), func() { t.Error("a failed write counts as done") })
	if !e.doubtful || len(j.errors) != 1 || j.Acknowledged() != 1 {
		t.Errorf("journal %+v, entry %+v: want one error, one acknowledged write and a doubtful entry", j.Summary(), e)
	}
}

func TestSnapshotDiff(t *testing.T) {
	object := func(size int64) map[string]any { return map[string]any{"spec": map[string]any{"size": size}} }
	before := Snapshot{"gadgets/a/x": object(1), "gadgets/a/y": object(2)}
	cases := map[string]struct {
		after Snapshot
		want  []string
	}{
		"equal":   {Snapshot{"gadgets/a/x": object(1), "gadgets/a/y": object(2)}, nil},
		"missing": {Snapshot{"gadgets/a/x": object(1)}, []string{"gadgets/a/y is missing"}},
		"new":     {Snapshot{"gadgets/a/x": object(1), "gadgets/a/y": object(2), "z": object(1)}, []string{"z is new"}},
		"changed": {Snapshot{"gadgets/a/x": object(5), "gadgets/a/y": object(2)}, []string{"gadgets/a/x (-before +after)"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := before.Diff(tc.after)
			if tc.want == nil && got != "" {
				t.Errorf("difference %q, want none", got)
			}
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("difference %q, want %q", got, want)
				}
			}
		})
	}
}
