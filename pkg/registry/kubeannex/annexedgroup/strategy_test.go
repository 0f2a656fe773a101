// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/install"
	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

func newStrategy() Strategy {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return NewStrategy(scheme)
}

// makeGroup returns a stored group of generation 3 that is fully annexed.
func makeGroup(change ...func(*kubeannex.AnnexedGroup)) *kubeannex.AnnexedGroup {
	group := &kubeannex.AnnexedGroup{
		ObjectMeta: metav1.ObjectMeta{
			Name: "argoproj.io", ResourceVersion: "7", UID: "uid", Generation: 3,
			Labels: map[string]string{"team": "a"}, Finalizers: []string{"kubeannex.io/release"},
		},
		Spec: kubeannex.AnnexedGroupSpec{Resources: []kubeannex.AnnexedResourceSpec{{Resource: "workflows", IndexLabels: []string{"app"}}}},
		Status: kubeannex.AnnexedGroupStatus{
			Phase: kubeannex.PhaseAnnexed, ObservedGeneration: 3,
			Resources: []kubeannex.AnnexedResourceStatus{{Resource: "workflows", Objects: 5, Copied: 5, Verified: 5}},
		},
	}
	for _, f := range change {
		f(group)
	}
	return group
}

func named(name string) func(*kubeannex.AnnexedGroup) {
	return func(group *kubeannex.AnnexedGroup) { group.Name = name }
}

func watchedBy(field string) func(*kubeannex.AnnexedGroup) {
	return func(group *kubeannex.AnnexedGroup) {
		group.Spec.Resources[0].WatchIndex = &kubeannex.WatchIndex{Field: field}
	}
}

func inPhase(phase kubeannex.AnnexedGroupPhase) func(*kubeannex.AnnexedGroup) {
	return func(group *kubeannex.AnnexedGroup) { group.Status.Phase = phase }
}

func TestBehaviour(t *testing.T) {
	strategy := newStrategy()
	got := map[string]bool{
		"namespaced":           strategy.NamespaceScoped(),
		"create by PUT":        strategy.AllowCreateOnUpdate(t.Context()),
		"unconditional update": strategy.AllowUnconditionalUpdate(t.Context()),
	}
	want := map[string]bool{"namespaced": false, "create by PUT": false, "unconditional update": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("behaviour (-want +got):\n%s", diff)
	}
}

func TestPrepareForCreate(t *testing.T) {
	got := makeGroup()
	newStrategy().PrepareForCreate(t.Context(), got)
	want := makeGroup(func(group *kubeannex.AnnexedGroup) {
		group.Generation = 1
		group.Status = kubeannex.AnnexedGroupStatus{Phase: kubeannex.PhasePending}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
}

func TestPrepareForUpdate(t *testing.T) {
	cases := map[string]struct {
		change func(*kubeannex.AnnexedGroup)
		want   *kubeannex.AnnexedGroup
	}{
		"a spec change raises the generation": {
			change: watchedBy("spec.nodeName"),
			want:   makeGroup(watchedBy("spec.nodeName"), func(group *kubeannex.AnnexedGroup) { group.Generation = 4 }),
		},
		"replacing the spec by its equal does not raise the generation": {
			change: func(group *kubeannex.AnnexedGroup) { group.Spec = *group.Spec.DeepCopy() },
			want:   makeGroup(),
		},
		"a label does not raise the generation": {
			change: func(group *kubeannex.AnnexedGroup) { group.Labels["team"] = "b" },
			want:   makeGroup(func(group *kubeannex.AnnexedGroup) { group.Labels["team"] = "b" }),
		},
		"the status stays": {change: inPhase(kubeannex.PhaseReleasing), want: makeGroup()},
		"a finalizer may go": {
			change: func(group *kubeannex.AnnexedGroup) { group.Finalizers = nil },
			want:   makeGroup(func(group *kubeannex.AnnexedGroup) { group.Finalizers = nil }),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := makeGroup(tc.change)
			newStrategy().PrepareForUpdate(t.Context(), got, makeGroup())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusPrepareForUpdate(t *testing.T) {
	cases := map[string]struct {
		change func(*kubeannex.AnnexedGroup)
		want   *kubeannex.AnnexedGroup
	}{
		"the status changes":   {change: inPhase(kubeannex.PhaseReleasing), want: makeGroup(inPhase(kubeannex.PhaseReleasing))},
		"the spec stays":       {change: watchedBy("spec.nodeName"), want: makeGroup()},
		"labels stay":          {change: func(group *kubeannex.AnnexedGroup) { group.Labels = nil }, want: makeGroup()},
		"finalizers stay":      {change: func(group *kubeannex.AnnexedGroup) { group.Finalizers = nil }, want: makeGroup()},
		"the generation stays": {change: func(group *kubeannex.AnnexedGroup) { group.Generation = 9 }, want: makeGroup()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := makeGroup(tc.change)
			NewStatusStrategy(newStrategy()).PrepareForUpdate(t.Context(), got, makeGroup())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResetFields(t *testing.T) {
	cases := map[string]struct {
		strategy rest.ResetFieldsStrategy
		want     string
	}{
		"main resource": {strategy: newStrategy(), want: `{"f:status":{}}`},
		"status": {
			strategy: NewStatusStrategy(newStrategy()),
			want: `{"f:metadata":{"f:annotations":{},"f:deletionTimestamp":{},"f:finalizers":{},"f:generation":{},` +
				`"f:labels":{},"f:ownerReferences":{},"f:selfLink":{}},"f:spec":{}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fieldsByVersion := tc.strategy.GetResetFields()
			set, ok := fieldsByVersion["kubeannex.io/v1alpha1"]
			if !ok || len(fieldsByVersion) != 1 {
				t.Fatalf("reset fields: got %v, want only kubeannex.io/v1alpha1", fieldsByVersion)
			}
			got, err := set.ToJSON()
			if err != nil {
				t.Fatalf("encoding field set: %v", err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("reset fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	strategy := newStrategy()
	status := NewStatusStrategy(strategy)
	raised := func(group *kubeannex.AnnexedGroup) { group.Generation++ }
	plain, cni := makeGroup(), makeGroup(named("cilium.io"))
	cases := map[string]struct {
		got  []string
		want int
	}{
		"create, plain group":                {got: strategy.WarningsOnCreate(t.Context(), plain)},
		"create, CNI group":                  {got: strategy.WarningsOnCreate(t.Context(), cni), want: 1},
		"update of the spec, CNI group":      {got: strategy.WarningsOnUpdate(t.Context(), makeGroup(named("cilium.io"), raised), cni), want: 1},
		"update of metadata only, CNI group": {got: strategy.WarningsOnUpdate(t.Context(), cni, cni)},
		"update of the status, CNI group":    {got: status.WarningsOnUpdate(t.Context(), makeGroup(named("cilium.io"), raised), cni)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if len(tc.got) != tc.want {
				t.Errorf("warnings: got %q, want %d", tc.got, tc.want)
			}
		})
	}
}

// TestBuiltInGroupsAreRefused compares the list of refused groups with the types
// that client-go knows, so that a Kubernetes update with a new group fails here.
func TestBuiltInGroupsAreRefused(t *testing.T) {
	versions := kubernetesscheme.Scheme.PrioritizedVersionsAllGroups()
	if len(versions) < 30 {
		t.Fatalf("client-go knows %d group versions, expected more than 30", len(versions))
	}
	for _, version := range versions {
		group := makeGroup(named(version.Group))
		group.Spec.AllowProtectedGroup = true
		group.ResourceVersion = ""
		if errs := newStrategy().Validate(t.Context(), group); len(errs) == 0 {
			t.Errorf("group %q: no error, but kube-apiserver serves it: add it to isBuiltInGroup", version.Group)
		}
	}
}

// TestExampleIsValid checks the object that the README tells users to create.
func TestExampleIsValid(t *testing.T) {
	body, err := os.ReadFile("../../../../artifacts/annexedgroup.yaml")
	if err != nil {
		t.Fatalf("reading example: %v", err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	obj, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(kubeannex.SchemeGroupVersion), body)
	if err != nil {
		t.Fatalf("decoding example: %v", err)
	}
	if errs := NewStrategy(scheme).Validate(t.Context(), obj); len(errs) != 0 {
		t.Errorf("validating example: %v", errs.ToAggregate())
	}
}

// TestThroughRegistryHelpers runs the strategies through upstream's call order.
func TestThroughRegistryHelpers(t *testing.T) {
	ctx := genericapirequest.WithNamespace(t.Context(), metav1.NamespaceNone)
	strategy := newStrategy()

	group := makeGroup(func(group *kubeannex.AnnexedGroup) { group.ResourceVersion = "" })
	rest.FillObjectMetaSystemFields(group)
	if err := rest.BeforeCreate(strategy, ctx, group); err != nil {
		t.Fatalf("creating: %v", err)
	}
	group.ResourceVersion = "1"

	changed := group.DeepCopy()
	watchedBy("spec.nodeName")(changed)
	if err := rest.BeforeUpdate(strategy, ctx, changed, group); err != nil {
		t.Fatalf("updating: %v", err)
	}
	if changed.Generation != 2 {
		t.Errorf("generation after a spec change: got %d, want 2", changed.Generation)
	}

	status := changed.DeepCopy()
	inPhase(kubeannex.PhaseCopying)(status)
	status.Generation = 99
	if err := rest.BeforeUpdate(NewStatusStrategy(strategy), ctx, status, changed); err != nil {
		t.Fatalf("updating status: %v", err)
	}
	if status.Generation != 2 || status.Status.Phase != kubeannex.PhaseCopying {
		t.Errorf("after a status update: got generation %d, phase %s, want 2, Copying", status.Generation, status.Status.Phase)
	}

	bad := changed.DeepCopy()
	watchedBy("spec[0]")(bad)
	if err := rest.BeforeUpdate(strategy, ctx, bad, changed); err == nil {
		t.Error("updating with a bad field path: got no error")
	}
}

func TestGetAttrs(t *testing.T) {
	gotLabels, gotFields, err := GetAttrs(makeGroup())
	if err != nil {
		t.Fatalf("GetAttrs: %v", err)
	}
	if diff := cmp.Diff(labels.Set{"team": "a"}, gotLabels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	wantFields := fields.Set{"metadata.name": "argoproj.io", "status.phase": "Annexed"}
	if diff := cmp.Diff(wantFields, gotFields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if _, _, err := GetAttrs(&kubeannex.AnnexedGroupList{}); err == nil {
		t.Error("GetAttrs of a list: got no error")
	}
}

// TestSelectableFieldsAreServed fails when a field can be matched but not asked for.
func TestSelectableFieldsAreServed(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	for name := range SelectableFields(makeGroup()) {
		if _, _, err := scheme.ConvertFieldLabel(kubeannexv1alpha1.SchemeGroupVersion.WithKind("AnnexedGroup"), name, "x"); err != nil {
			t.Errorf("field %s: %v", name, err)
		}
	}
}
