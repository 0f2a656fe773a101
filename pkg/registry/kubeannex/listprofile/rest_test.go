// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listprofile

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

type fixed struct{}

func (fixed) Profiles(context.Context) (*kubeannex.ListProfileList, string) {
	return profiles(), "the reads of host-3 are missing"
}

func profiles() *kubeannex.ListProfileList {
	return &kubeannex.ListProfileList{
		Replica: "host-1", Replicas: []string{"host-1", "host-2"}, Missing: []string{"host-3"}, Since: metav1.Unix(1000, 0), Dropped: 7,
		Items: []kubeannex.ListProfile{{
			ObjectMeta: metav1.ObjectMeta{Name: "worst"},
			Profile: kubeannex.ListProfileRow{
				Client: "agent", ClientVersion: "v1", User: "alice", Verb: "list", Group: "lab.annex.test", Version: "v1", Resource: "gadgets",
				Selector: "spec.nodeName=", Source: kubeannex.ListSourceCache, Index: "f:spec.nodeName",
				Count: 3, Failed: 1, Scanned: 1000, Returned: 4, Bytes: 500, LastSeen: metav1.NewTime(time.Now().Add(-90 * time.Second)),
			},
		}, {
			ObjectMeta: metav1.ObjectMeta{Name: "refused"},
			Profile:    kubeannex.ListProfileRow{User: "bob", Verb: "list", Group: "lab.annex.test", Version: "v1", Resource: "gadgets/status", Count: 1, Failed: 1},
		}},
	}
}

// recorder has the texts of warnings.
type recorder []string

func (r *recorder) AddWarning(_, text string) { *r = append(*r, text) }

func TestGet(t *testing.T) {
	rest := NewREST(fixed{})
	got, err := rest.Get(t.Context(), "refused", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if user := got.(*kubeannex.ListProfile).Profile.User; user != "bob" {
		t.Errorf("got the profile of %s", user)
	}
	if _, err := rest.Get(t.Context(), "none", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got error %v, want not found", err)
	}
}

func TestList(t *testing.T) {
	label := labels.SelectorFromSet(labels.Set{"app": "x"})
	tests := map[string]struct {
		options *metainternalversion.ListOptions
		want    []string
	}{
		"all":                       {&metainternalversion.ListOptions{}, []string{"worst", "refused"}},
		"no options":                {nil, []string{"worst", "refused"}},
		"a limit is ignored":        {&metainternalversion.ListOptions{Limit: 1}, []string{"worst", "refused"}},
		"by name":                   {&metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "refused")}, []string{"refused"}},
		"no profile has a label":    {&metainternalversion.ListOptions{LabelSelector: label}, nil},
		"none by a name without it": {&metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "none")}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			warnings := &recorder{}
			got, err := NewREST(fixed{}).List(warning.WithWarningRecorder(t.Context(), warnings), tc.options)
			if err != nil {
				t.Fatal(err)
			}
			list := got.(*kubeannex.ListProfileList)
			var names []string
			for _, item := range list.Items {
				names = append(names, item.Name)
			}
			if diff := cmp.Diff(tc.want, names); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(&recorder{"the reads of host-3 are missing"}, warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if list.Replica != "host-1" || len(list.Replicas) != 2 || len(list.Missing) != 1 || list.Dropped != 7 || list.Since.Unix() != 1000 || list.Items == nil {
				t.Errorf("got replica %q, dropped %d, since %v, items %v", list.Replica, list.Dropped, list.Since, list.Items)
			}
		})
	}
}

func TestTable(t *testing.T) {
	profiles := profiles()
	worst := []any{
		"agent", "alice", "list", "gadgets.lab.annex.test", "spec.nodeName=", "Cache",
		int64(3), int64(1000), int64(4), int64(500), "90s", "v1", "f:spec.nodeName", int64(1), "v1", "worst",
	}
	refused := []any{
		"<none>", "bob", "list", "gadgets.lab.annex.test/status", "<none>", "<none>",
		int64(1), int64(0), int64(0), int64(0), "<unknown>", "v1", "<none>", int64(1), "<none>", "refused",
	}
	tests := map[string]struct {
		object, options runtime.Object
		wantColumns     int
		want            [][]any
	}{
		"a list":          {profiles, &metav1.TableOptions{}, 16, [][]any{worst, refused}},
		"one":             {&profiles.Items[0], nil, 16, [][]any{worst}},
		"without headers": {&profiles.Items[1], &metav1.TableOptions{NoHeaders: true}, 0, [][]any{refused}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			table, err := TableConvertor{}.ConvertToTable(t.Context(), tc.object, tc.options)
			if err != nil {
				t.Fatal(err)
			}
			var got [][]any
			for _, row := range table.Rows {
				got = append(got, row.Cells)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}
			if len(table.ColumnDefinitions) != tc.wantColumns {
				t.Errorf("got %d columns, want %d", len(table.ColumnDefinitions), tc.wantColumns)
			}
		})
	}
	if _, err := (TableConvertor{}).ConvertToTable(t.Context(), &kubeannex.AnnexedGroup{}, nil); err == nil {
		t.Error("printed an AnnexedGroup")
	}
}
