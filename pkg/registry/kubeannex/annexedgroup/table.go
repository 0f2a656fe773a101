// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"fmt"

	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

var _ rest.TableConvertor = TableConvertor{}

// TableConvertor prints AnnexedGroups for `kubectl get`.
type TableConvertor struct{}

// ConvertToTable returns one row for an AnnexedGroup or for each item of a list.
// It fails for objects of another type.
func (TableConvertor) ConvertToTable(_ context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if options, ok := tableOptions.(*metav1.TableOptions); !ok || !options.NoHeaders {
		table.ColumnDefinitions = columns()
	}
	switch typed := object.(type) {
	case *kubeannex.AnnexedGroup:
		table.ResourceVersion = typed.ResourceVersion
		table.Rows = []metav1.TableRow{row(typed)}
	case *kubeannex.AnnexedGroupList:
		table.ResourceVersion = typed.ResourceVersion
		table.Continue = typed.Continue
		table.RemainingItemCount = typed.RemainingItemCount
		for i := range typed.Items {
			table.Rows = append(table.Rows, row(&typed.Items[i]))
		}
	default:
		return nil, fmt.Errorf("printing AnnexedGroups: got a %T", object)
	}
	return table, nil
}

func columns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "The API group."},
		{Name: "Phase", Type: "string", Description: "The step that the adoption or release is in."},
		{Name: "Resources", Type: "integer", Description: "The number of resources of the group that annex knows."},
		{Name: "Objects", Type: "integer", Description: "The number of objects of all those resources."},
		{Name: "Progress", Type: "string", Description: "The share of objects copied, or verified while verifying; rounded down."},
		{Name: "Age", Type: "string", Description: "The time since the AnnexedGroup was created."},
	}
}

func row(group *kubeannex.AnnexedGroup) metav1.TableRow {
	var objects int64
	for i := range group.Status.Resources {
		objects += group.Status.Resources[i].Objects
	}
	return metav1.TableRow{
		Cells: []any{
			group.Name,
			string(group.Status.Phase),
			int64(len(group.Status.Resources)),
			objects,
			progress(&group.Status),
			metatable.ConvertToHumanReadableDateType(group.CreationTimestamp),
		},
		Object: runtime.RawExtension{Object: group},
	}
}

// noProgress stands for phases in which nothing is being counted.
const noProgress = "<none>"

// progress returns how much of the present phase's counting is done. 100% is
// shown only when not a single object is missing.
func progress(status *kubeannex.AnnexedGroupStatus) string {
	var total, done int64
	for i := range status.Resources {
		resource := &status.Resources[i]
		total += resource.Objects
		if status.Phase == kubeannex.PhaseVerifying || status.Phase == kubeannex.PhaseReleaseVerifying {
			done += min(resource.Verified, resource.Objects)
		} else {
			done += min(resource.Copied, resource.Objects)
		}
	}
	switch status.Phase {
	case kubeannex.PhaseCopying, kubeannex.PhaseCatchingUp, kubeannex.PhaseFencing, kubeannex.PhaseVerifying,
		kubeannex.PhaseReleasing, kubeannex.PhaseReleaseFencing, kubeannex.PhaseReleaseVerifying:
		if total == 0 {
			return noProgress
		}
		// Floating point keeps absurd counts from overflowing; at most 99 unless all is done.
		percent := int64(float64(done) / float64(total) * 100)
		if done < total {
			percent = min(percent, 99)
		}
		return fmt.Sprintf("%d%%", percent)
	case kubeannex.PhaseCuttingOver, kubeannex.PhaseUnfencing, kubeannex.PhaseAnnexed:
		return "100%"
	default:
		return noProgress
	}
}
