// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// fieldError is what the tables compare: where and of which kind, not the wording.
type fieldError struct {
	Type  field.ErrorType
	Field string
}

func fieldErrors(errs field.ErrorList) []fieldError {
	var result []fieldError
	for _, err := range errs {
		result = append(result, fieldError{err.Type, err.Field})
	}
	return result
}

func makeGroup(name string, change ...func(*kubeannex.AnnexedGroup)) *kubeannex.AnnexedGroup {
	group := &kubeannex.AnnexedGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
		Status:     kubeannex.AnnexedGroupStatus{Phase: kubeannex.PhasePending},
	}
	for _, f := range change {
		f(group)
	}
	return group
}

func withResources(resources ...kubeannex.AnnexedResourceSpec) func(*kubeannex.AnnexedGroup) {
	return func(group *kubeannex.AnnexedGroup) { group.Spec.Resources = resources }
}

func allowProtected(group *kubeannex.AnnexedGroup) { group.Spec.AllowProtectedGroup = true }

func labelKeys(count int) []string {
	var keys []string
	for i := range count {
		keys = append(keys, fmt.Sprintf("example.com/key-%d", i))
	}
	return keys
}

func TestValidateGroupName(t *testing.T) {
	forbidden := []fieldError{{field.ErrorTypeForbidden, "metadata.name"}}
	invalid := []fieldError{{field.ErrorTypeInvalid, "metadata.name"}}
	cases := map[string]struct {
		name           string
		allowProtected bool
		want           []fieldError
	}{
		"a group of custom resources":                 {name: "argoproj.io"},
		"a deep group":                                {name: "a.b.c.example.com"},
		"x-k8s.io is not protected":                   {name: "cluster.x-k8s.io"},
		"a domain that only ends alike":               {name: "myk8s.io"},
		"no name":                                     {want: []fieldError{{field.ErrorTypeRequired, "metadata.name"}, forbidden[0]}},
		"no dot":                                      {name: "workflows", want: invalid},
		"upper case":                                  {name: "Argoproj.io", want: invalid},
		"a trailing dot":                              {name: "argoproj.io.", want: invalid},
		"built-in without a dot":                      {name: "apps", want: forbidden},
		"built-in without a dot, override":            {name: "batch", allowProtected: true, want: forbidden},
		"built-in RBAC":                               {name: "rbac.authorization.k8s.io", want: forbidden},
		"built-in RBAC, override":                     {name: "rbac.authorization.k8s.io", allowProtected: true, want: forbidden},
		"CustomResourceDefinitions, override":         {name: "apiextensions.k8s.io", allowProtected: true, want: forbidden},
		"APIServices, override":                       {name: "apiregistration.k8s.io", allowProtected: true, want: forbidden},
		"annex itself":                                {name: "kubeannex.io", want: forbidden},
		"below annex, override":                       {name: "x.kubeannex.io", allowProtected: true, want: forbidden},
		"protected k8s.io":                            {name: "gateway.networking.k8s.io", want: forbidden},
		"protected k8s.io, override":                  {name: "gateway.networking.k8s.io", allowProtected: true},
		"protected kubernetes.io":                     {name: "node.kubernetes.io", want: forbidden},
		"protected kubernetes.io, override":           {name: "node.kubernetes.io", allowProtected: true},
		"the protected domain itself":                 {name: "k8s.io", want: forbidden},
		"the other protected domain itself":           {name: "kubernetes.io", want: forbidden},
		"override on a group that needs none is fine": {name: "argoproj.io", allowProtected: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			group := makeGroup(tc.name)
			group.Spec.AllowProtectedGroup = tc.allowProtected
			if diff := cmp.Diff(tc.want, fieldErrors(ValidateAnnexedGroup(group))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateResources(t *testing.T) {
	const path = "spec.resources[0]"
	cases := map[string]struct {
		resources []kubeannex.AnnexedResourceSpec
		want      []fieldError
	}{
		"labels and a field": {resources: []kubeannex.AnnexedResourceSpec{{
			Resource: "endpoints", IndexLabels: []string{"app", "app.kubernetes.io/name"}, WatchIndex: &kubeannex.WatchIndex{Field: "spec.nodeName"},
		}}},
		"two resources":    {resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows"}, {Resource: "cronworkflows"}}},
		"no resource name": {resources: []kubeannex.AnnexedResourceSpec{{}}, want: []fieldError{{field.ErrorTypeRequired, path + ".resource"}}},
		"a subresource":    {resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows/status"}}, want: []fieldError{{field.ErrorTypeInvalid, path + ".resource"}}},
		"a kind":           {resources: []kubeannex.AnnexedResourceSpec{{Resource: "Workflow"}}, want: []fieldError{{field.ErrorTypeInvalid, path + ".resource"}}},
		"a resource twice": {
			resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows"}, {Resource: "workflows"}},
			want:      []fieldError{{field.ErrorTypeDuplicate, "spec.resources[1].resource"}},
		},
		"a label twice": {
			resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows", IndexLabels: []string{"app", "app"}}},
			want:      []fieldError{{field.ErrorTypeDuplicate, path + ".indexLabels[1]"}},
		},
		"label keys that no object can have": {
			resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows", IndexLabels: []string{"", "a/b/c", "app=nginx", "app", strings.Repeat("a", 64), "Example.COM/app"}}},
			want: []fieldError{
				{field.ErrorTypeInvalid, path + ".indexLabels[0]"},
				{field.ErrorTypeInvalid, path + ".indexLabels[0]"},
				{field.ErrorTypeInvalid, path + ".indexLabels[1]"},
				{field.ErrorTypeInvalid, path + ".indexLabels[2]"},
				{field.ErrorTypeInvalid, path + ".indexLabels[4]"},
				{field.ErrorTypeInvalid, path + ".indexLabels[5]"},
			},
		},
		"eight labels":               {resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows", IndexLabels: labelKeys(8)}}},
		"nine labels":                {resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows", IndexLabels: labelKeys(9)}}, want: []fieldError{{field.ErrorTypeInvalid, path}}},
		"seven labels and a field":   {resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows", IndexLabels: labelKeys(7), WatchIndex: &kubeannex.WatchIndex{Field: "spec.a"}}}},
		"eight labels and a field":   {resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows", IndexLabels: labelKeys(8), WatchIndex: &kubeannex.WatchIndex{Field: "spec.a"}}}, want: []fieldError{{field.ErrorTypeInvalid, path}}},
		"eight labels, one watched":  {resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows", IndexLabels: labelKeys(8), WatchIndex: &kubeannex.WatchIndex{Label: "example.com/key-3"}}}},
		"eight labels and one other": {resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows", IndexLabels: labelKeys(8), WatchIndex: &kubeannex.WatchIndex{Label: "app"}}}, want: []fieldError{{field.ErrorTypeInvalid, path}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			group := makeGroup("argoproj.io", withResources(tc.resources...))
			if diff := cmp.Diff(tc.want, fieldErrors(ValidateAnnexedGroup(group))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateWatchIndex(t *testing.T) {
	const path = "spec.resources[0].watchIndex"
	invalidField := []fieldError{{field.ErrorTypeInvalid, path + ".field"}}
	cases := map[string]struct {
		index kubeannex.WatchIndex
		want  []fieldError
	}{
		"a field":                {index: kubeannex.WatchIndex{Field: "spec.nodeName"}},
		"the name":               {index: kubeannex.WatchIndex{Field: "metadata.name"}},
		"the namespace":          {index: kubeannex.WatchIndex{Field: "metadata.namespace"}},
		"a field at the top":     {index: kubeannex.WatchIndex{Field: "scope"}},
		"a field with dashes":    {index: kubeannex.WatchIndex{Field: "spec.node-name_2"}},
		"a label":                {index: kubeannex.WatchIndex{Label: "app.kubernetes.io/name"}},
		"neither":                {want: []fieldError{{field.ErrorTypeRequired, path}}},
		"both":                   {index: kubeannex.WatchIndex{Field: "spec.a", Label: "app"}, want: []fieldError{{field.ErrorTypeInvalid, path}}},
		"an impossible label":    {index: kubeannex.WatchIndex{Label: "a b"}, want: []fieldError{{field.ErrorTypeInvalid, path + ".label"}}},
		"a leading dot":          {index: kubeannex.WatchIndex{Field: ".spec.nodeName"}, want: invalidField},
		"a trailing dot":         {index: kubeannex.WatchIndex{Field: "spec."}, want: invalidField},
		"an empty step":          {index: kubeannex.WatchIndex{Field: "spec..nodeName"}, want: invalidField},
		"an array index":         {index: kubeannex.WatchIndex{Field: "spec.items[0]"}, want: invalidField},
		"a wildcard":             {index: kubeannex.WatchIndex{Field: "spec.*"}, want: invalidField},
		"a quoted name":          {index: kubeannex.WatchIndex{Field: "spec['a.b']"}, want: invalidField},
		"a template":             {index: kubeannex.WatchIndex{Field: "{.spec.nodeName}"}, want: invalidField},
		"a newline at the end":   {index: kubeannex.WatchIndex{Field: "spec.nodeName\n"}, want: invalidField},
		"a label below metadata": {index: kubeannex.WatchIndex{Field: "metadata.labels.app"}, want: invalidField},
		"metadata alone":         {index: kubeannex.WatchIndex{Field: "metadata"}, want: invalidField},
		"a name like metadata":   {index: kubeannex.WatchIndex{Field: "metadataUrl"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			group := makeGroup("argoproj.io", withResources(kubeannex.AnnexedResourceSpec{Resource: "workflows", WatchIndex: &tc.index}))
			if diff := cmp.Diff(tc.want, fieldErrors(ValidateAnnexedGroup(group))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateAnnexedGroupUpdate(t *testing.T) {
	tooMany := withResources(kubeannex.AnnexedResourceSpec{Resource: "workflows", IndexLabels: labelKeys(9)})
	cases := map[string]struct {
		old, group *kubeannex.AnnexedGroup
		want       []fieldError
	}{
		"an index is added": {
			old:   makeGroup("argoproj.io"),
			group: makeGroup("argoproj.io", withResources(kubeannex.AnnexedResourceSpec{Resource: "workflows", IndexLabels: []string{"app"}})),
		},
		"a bad spec comes": {
			old: makeGroup("argoproj.io"), group: makeGroup("argoproj.io", tooMany),
			want: []fieldError{{field.ErrorTypeInvalid, "spec.resources[0]"}},
		},
		"a bad spec of old stays, as when a finalizer is removed": {
			old: makeGroup("argoproj.io", tooMany), group: makeGroup("argoproj.io", tooMany),
		},
		"the override is withdrawn": {
			old: makeGroup("gateway.networking.k8s.io", allowProtected), group: makeGroup("gateway.networking.k8s.io"),
			want: []fieldError{{field.ErrorTypeForbidden, "metadata.name"}},
		},
		"the name changes": {
			old: makeGroup("argoproj.io"), group: makeGroup("example.com"),
			want: []fieldError{{field.ErrorTypeInvalid, "metadata.name"}},
		},
		"no resource version": {
			old:   makeGroup("argoproj.io"),
			group: makeGroup("argoproj.io", func(group *kubeannex.AnnexedGroup) { group.ResourceVersion = "" }),
			want:  []fieldError{{field.ErrorTypeInvalid, "metadata.resourceVersion"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, fieldErrors(ValidateAnnexedGroupUpdate(tc.group, tc.old))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateAnnexedGroupStatusUpdate(t *testing.T) {
	condition := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Done", LastTransitionTime: metav1.Now()}
	cases := map[string]struct {
		status kubeannex.AnnexedGroupStatus
		want   []fieldError
	}{
		"everything set": {status: kubeannex.AnnexedGroupStatus{
			Phase: kubeannex.PhaseAnnexed, ObservedGeneration: 1, Conditions: []metav1.Condition{condition},
			Resources:     []kubeannex.AnnexedResourceStatus{{Resource: "workflows", Objects: 3, Bytes: 4500, Copied: 3, Verified: 3}},
			FenceDuration: &metav1.Duration{Duration: 1800 * time.Millisecond},
		}},
		"an unknown phase": {status: kubeannex.AnnexedGroupStatus{Phase: "Done"}, want: []fieldError{{field.ErrorTypeNotSupported, "status.phase"}}},
		"no phase":         {want: []fieldError{{field.ErrorTypeNotSupported, "status.phase"}}},
		"a condition twice": {
			status: kubeannex.AnnexedGroupStatus{Phase: kubeannex.PhasePending, Conditions: []metav1.Condition{condition, condition}},
			want:   []fieldError{{field.ErrorTypeDuplicate, "status.conditions[1]"}},
		},
		"a condition without reason": {
			status: kubeannex.AnnexedGroupStatus{Phase: kubeannex.PhasePending, Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()}}},
			want:   []fieldError{{field.ErrorTypeRequired, "status.conditions[0].reason"}},
		},
		"negative numbers": {
			status: kubeannex.AnnexedGroupStatus{
				Phase: kubeannex.PhasePending, ObservedGeneration: -1, FenceDuration: &metav1.Duration{Duration: -1},
				Resources: []kubeannex.AnnexedResourceStatus{{Resource: "workflows", Objects: -1, Bytes: -1, Copied: -1, Verified: -1}},
			},
			want: []fieldError{
				{field.ErrorTypeInvalid, "status.observedGeneration"},
				{field.ErrorTypeInvalid, "status.fenceDuration"},
				{field.ErrorTypeInvalid, "status.resources[0].objects"},
				{field.ErrorTypeInvalid, "status.resources[0].bytes"},
				{field.ErrorTypeInvalid, "status.resources[0].copied"},
				{field.ErrorTypeInvalid, "status.resources[0].verified"},
			},
		},
		"a resource twice": {
			status: kubeannex.AnnexedGroupStatus{Phase: kubeannex.PhasePending, Resources: []kubeannex.AnnexedResourceStatus{{Resource: "workflows"}, {Resource: "workflows"}}},
			want:   []fieldError{{field.ErrorTypeDuplicate, "status.resources[1].resource"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			old := makeGroup("argoproj.io")
			group := old.DeepCopy()
			group.Status = tc.status
			if diff := cmp.Diff(tc.want, fieldErrors(ValidateAnnexedGroupStatusUpdate(group, old))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarningsForAnnexedGroup(t *testing.T) {
	cases := map[string]struct {
		name string
		want startUpPurpose
	}{
		"Cilium":            {name: "cilium.io", want: purposeNetwork},
		"Calico's CRDs":     {name: "crd.projectcalico.org", want: purposeNetwork},
		"Calico's API":      {name: "projectcalico.org", want: purposeNetwork},
		"snapshots":         {name: "snapshot.storage.k8s.io", want: purposeStorage},
		"Longhorn":          {name: "longhorn.io", want: purposeStorage},
		"Rook":              {name: "ceph.rook.io", want: purposeStorage},
		"cert-manager":      {name: "cert-manager.io", want: purposeCertificates},
		"cert-manager ACME": {name: "acme.cert-manager.io", want: purposeCertificates},
		"Argo":              {name: "argoproj.io"},
		"only ends alike":   {name: "notcilium.io"},
		"only starts alike": {name: "cilium.io.example.com"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var want []string
			if tc.want != "" {
				want = []string{"metadata.name: clusters need this group to start (" + string(tc.want) + "); adopt it only if annex can start without it"}
			}
			got := WarningsForAnnexedGroup(makeGroup(tc.name))
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			for _, line := range got {
				if len(line) > 120 {
					t.Errorf("warning has %d characters, clients cut at 120: %s", len(line), line)
				}
			}
		})
	}
}
