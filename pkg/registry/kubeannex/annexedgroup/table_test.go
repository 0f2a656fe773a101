// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

func counted(resources ...kubeannex.AnnexedResourceStatus) func(*kubeannex.AnnexedGroup) {
	return func(group *kubeannex.AnnexedGroup) { group.Status.Resources = resources }
}

func TestConvertToTable(t *testing.T) {
	remaining := int64(4)
	old := func(group *kubeannex.AnnexedGroup) {
		group.CreationTimestamp = metav1.NewTime(time.Now().Add(-49 * time.Hour))
	}
	annexed := makeGroup(old)
	pending := makeGroup(named("example.com"), inPhase(kubeannex.PhasePending), counted())
	annexedRow := []any{"argoproj.io", "Annexed", int64(1), int64(5), "100%", "2d1h"}
	pendingRow := []any{"example.com", "Pending", int64(0), int64(0), "<none>", "<unknown>"}
	list := &kubeannex.AnnexedGroupList{
		ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "token", RemainingItemCount: &remaining},
		Items:    []kubeannex.AnnexedGroup{*annexed, *pending},
	}
	headers := []string{"Name", "Phase", "Resources", "Objects", "Progress", "Age"}
	cases := map[string]struct {
		object      runtime.Object
		options     runtime.Object
		wantHeaders []string
		wantMeta    metav1.ListMeta
		wantRows    [][]any
		wantErr     bool
	}{
		"one object": {object: annexed, wantHeaders: headers, wantMeta: metav1.ListMeta{ResourceVersion: "7"}, wantRows: [][]any{annexedRow}},
		"a list":     {object: list, options: &metav1.TableOptions{}, wantHeaders: headers, wantMeta: list.ListMeta, wantRows: [][]any{annexedRow, pendingRow}},
		"no headers, as in later events of a watch": {
			object: annexed, options: &metav1.TableOptions{NoHeaders: true},
			wantMeta: metav1.ListMeta{ResourceVersion: "7"}, wantRows: [][]any{annexedRow},
		},
		"an object of another type": {object: &metav1.Status{}, wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			table, err := TableConvertor{}.ConvertToTable(t.Context(), tc.object, tc.options)
			if (err != nil) != tc.wantErr {
				t.Fatalf("error: got %v, want %t", err, tc.wantErr)
			}
			if err != nil {
				return
			}
			var gotHeaders []string
			for _, column := range table.ColumnDefinitions {
				gotHeaders = append(gotHeaders, column.Name)
			}
			var gotRows [][]any
			for _, row := range table.Rows {
				gotRows = append(gotRows, row.Cells)
				if row.Object.Object == nil {
					t.Error("row without object: label columns and sorting would fail")
				}
			}
			if diff := cmp.Diff(tc.wantHeaders, gotHeaders); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantMeta, table.ListMeta); diff != "" {
				t.Errorf("list metadata (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantRows, gotRows); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	workflows := kubeannex.AnnexedResourceStatus{Resource: "workflows", Objects: 90, Copied: 90, Verified: 45}
	crons := kubeannex.AnnexedResourceStatus{Resource: "cronworkflows", Objects: 10, Copied: 5}
	nearly := kubeannex.AnnexedResourceStatus{Resource: "workflows", Objects: 100000, Copied: 99999}
	shrunk := kubeannex.AnnexedResourceStatus{Resource: "workflows", Objects: 10, Copied: 50}
	cases := map[string]struct {
		phase     kubeannex.AnnexedGroupPhase
		resources []kubeannex.AnnexedResourceStatus
		want      string
	}{
		"copying, over all resources":          {phase: kubeannex.PhaseCopying, resources: []kubeannex.AnnexedResourceStatus{workflows, crons}, want: "95%"},
		"verifying counts verified objects":    {phase: kubeannex.PhaseVerifying, resources: []kubeannex.AnnexedResourceStatus{workflows}, want: "50%"},
		"one object short is not 100%":         {phase: kubeannex.PhaseCatchingUp, resources: []kubeannex.AnnexedResourceStatus{nearly}, want: "99%"},
		"source objects deleted while copying": {phase: kubeannex.PhaseCatchingUp, resources: []kubeannex.AnnexedResourceStatus{shrunk}, want: "100%"},
		"a surplus hides no other shortage":    {phase: kubeannex.PhaseCopying, resources: []kubeannex.AnnexedResourceStatus{shrunk, crons}, want: "75%"},
		"nothing counted yet":                  {phase: kubeannex.PhaseCopying, want: "<none>"},
		"before the copy":                      {phase: kubeannex.PhasePreflight, resources: []kubeannex.AnnexedResourceStatus{workflows}, want: "<none>"},
		"annexed, objects added since":         {phase: kubeannex.PhaseAnnexed, resources: []kubeannex.AnnexedResourceStatus{workflows, crons}, want: "100%"},
		"releasing":                            {phase: kubeannex.PhaseReleasing, resources: []kubeannex.AnnexedResourceStatus{crons}, want: "50%"},
		"aborted":                              {phase: kubeannex.PhaseAborted, resources: []kubeannex.AnnexedResourceStatus{workflows}, want: "<none>"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := progress(&kubeannex.AnnexedGroupStatus{Phase: tc.phase, Resources: tc.resources})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
		})
	}
}
