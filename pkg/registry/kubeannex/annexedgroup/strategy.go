// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package annexedgroup holds the rules by which the API server changes, checks,
// selects and prints AnnexedGroups. It does no I/O; the storage package beside
// it assembles the REST endpoints.
package annexedgroup

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/validation"
)

var (
	_ rest.RESTCreateStrategy  = Strategy{}
	_ rest.RESTUpdateStrategy  = Strategy{}
	_ rest.RESTDeleteStrategy  = Strategy{}
	_ rest.ResetFieldsStrategy = Strategy{}
)

// Strategy creates, updates and deletes AnnexedGroups. It owns spec and
// metadata; status passes through StatusStrategy only.
type Strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

// NewStrategy returns a strategy for objects that typer knows, normally the scheme.
func NewStrategy(typer runtime.ObjectTyper) Strategy {
	return Strategy{typer, names.SimpleNameGenerator}
}

// NamespaceScoped is false: an API group belongs to the whole cluster.
func (Strategy) NamespaceScoped() bool { return false }

// AllowCreateOnUpdate is false: adopting a group takes a POST.
func (Strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate is true as for most built-in types
// (k8s.io/kubernetes/pkg/registry/batch): a replace without resourceVersion
// takes the newest object as its base.
func (Strategy) AllowUnconditionalUpdate(context.Context) bool { return true }

// GetResetFields names what PrepareForCreate and PrepareForUpdate take back, so
// that server-side apply does not make the client its owner.
func (Strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(kubeannexv1alpha1.SchemeGroupVersion.String()): fieldpath.NewSet(
			fieldpath.MakePathOrDie("status"),
		),
	}
}

// PrepareForCreate starts the generation at 1 and drops any status that the
// client sent. The first phase is set here, as for pods, so that a dry run
// answers what would be stored.
func (Strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	group := obj.(*kubeannex.AnnexedGroup)
	group.Generation = 1
	group.Status = kubeannex.AnnexedGroupStatus{Phase: kubeannex.PhasePending}
}

// PrepareForUpdate keeps the stored status and raises the generation when the spec changed.
func (Strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	group, oldGroup := obj.(*kubeannex.AnnexedGroup), old.(*kubeannex.AnnexedGroup)
	group.Status = oldGroup.Status
	if !apiequality.Semantic.DeepEqual(group.Spec, oldGroup.Spec) {
		group.Generation = oldGroup.Generation + 1
	}
}

// Validate checks a new object.
func (Strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateAnnexedGroup(obj.(*kubeannex.AnnexedGroup))
}

// ValidateUpdate checks a change of spec or metadata.
func (Strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateAnnexedGroupUpdate(obj.(*kubeannex.AnnexedGroup), old.(*kubeannex.AnnexedGroup))
}

// WarningsOnCreate warns of groups that a cluster needs in order to start.
func (Strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return validation.WarningsForAnnexedGroup(obj.(*kubeannex.AnnexedGroup))
}

// WarningsOnUpdate repeats the warnings when the spec changed. Controllers that
// only touch metadata are left alone.
func (Strategy) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	group, oldGroup := obj.(*kubeannex.AnnexedGroup), old.(*kubeannex.AnnexedGroup)
	if group.Generation == oldGroup.Generation {
		return nil
	}
	return validation.WarningsForAnnexedGroup(group)
}

// Canonicalize has nothing to do: every valid AnnexedGroup is in its one form.
func (Strategy) Canonicalize(runtime.Object) {}

var (
	_ rest.RESTUpdateStrategy  = StatusStrategy{}
	_ rest.ResetFieldsStrategy = StatusStrategy{}
)

// StatusStrategy updates the status subresource. It overrides only what differs
// from Strategy.
type StatusStrategy struct {
	Strategy
}

// NewStatusStrategy returns the strategy of the status subresource.
func NewStatusStrategy(strategy Strategy) StatusStrategy {
	return StatusStrategy{strategy}
}

// GetResetFields names what PrepareForUpdate takes back: the spec and exactly
// those metadata fields that metav1.ResetObjectMetaForStatus resets.
func (StatusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(kubeannexv1alpha1.SchemeGroupVersion.String()): fieldpath.NewSet(
			fieldpath.MakePathOrDie("spec"),
			fieldpath.MakePathOrDie("metadata", "deletionTimestamp"),
			fieldpath.MakePathOrDie("metadata", "generation"),
			fieldpath.MakePathOrDie("metadata", "selfLink"),
			fieldpath.MakePathOrDie("metadata", "labels"),
			fieldpath.MakePathOrDie("metadata", "annotations"),
			fieldpath.MakePathOrDie("metadata", "finalizers"),
			fieldpath.MakePathOrDie("metadata", "ownerReferences"),
		),
	}
}

// PrepareForUpdate keeps the stored spec and metadata. Finalizers above all: the
// one that stands for "not released yet" must not vanish by a status update.
func (StatusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	group, oldGroup := obj.(*kubeannex.AnnexedGroup), old.(*kubeannex.AnnexedGroup)
	group.Spec = oldGroup.Spec
	metav1.ResetObjectMetaForStatus(&group.ObjectMeta, &oldGroup.ObjectMeta)
}

// ValidateUpdate checks the new status.
func (StatusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateAnnexedGroupStatusUpdate(obj.(*kubeannex.AnnexedGroup), old.(*kubeannex.AnnexedGroup))
}

// WarningsOnUpdate is silent: who writes the status did not choose the group.
func (StatusStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// GetAttrs returns what label and field selectors match against. It fails for
// objects of another type.
func GetAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	group, ok := obj.(*kubeannex.AnnexedGroup)
	if !ok {
		return nil, nil, fmt.Errorf("selecting AnnexedGroups: got a %T", obj)
	}
	return labels.Set(group.Labels), SelectableFields(group), nil
}

// SelectableFields returns metadata.name and status.phase. The served version
// must declare the same names in its field label conversion.
func SelectableFields(group *kubeannex.AnnexedGroup) fields.Set {
	return generic.AddObjectMetaFieldsSet(fields.Set{"status.phase": string(group.Status.Phase)}, &group.ObjectMeta, false)
}
