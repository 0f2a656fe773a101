// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation holds the rules that AnnexedGroups must meet.
package validation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

// MaxIndexes is the largest number of different indexes that an AnnexedGroup may
// name for one resource. Every index is a copy of the resource's keys in memory
// and work on every write.
const MaxIndexes = 8

// ValidateAnnexedGroup checks a new AnnexedGroup.
func ValidateAnnexedGroup(group *kubeannex.AnnexedGroup) field.ErrorList {
	errs := validateMeta(group)
	errs = append(errs, validateGroupName(group)...)
	return append(errs, validateSpec(&group.Spec, field.NewPath("spec"))...)
}

// ValidateAnnexedGroupUpdate checks a change of metadata or spec. The rules for
// group and spec are applied only when the spec changes: a rule that became
// stricter must not keep the controller from removing its finalizer.
func ValidateAnnexedGroupUpdate(group, old *kubeannex.AnnexedGroup) field.ErrorList {
	errs := validateMetaUpdate(group, old)
	if apiequality.Semantic.DeepEqual(group.Spec, old.Spec) {
		return errs
	}
	errs = append(errs, validateGroupName(group)...)
	return append(errs, validateSpec(&group.Spec, field.NewPath("spec"))...)
}

// ValidateAnnexedGroupStatusUpdate checks a change made through the status subresource.
func ValidateAnnexedGroupStatusUpdate(group, old *kubeannex.AnnexedGroup) field.ErrorList {
	errs := validateMetaUpdate(group, old)
	return append(errs, validateStatus(&group.Status, field.NewPath("status"))...)
}

// WarningsForAnnexedGroup returns one line for each thing that is allowed but
// likely to hurt: adopting a group that the cluster needs in order to start.
func WarningsForAnnexedGroup(group *kubeannex.AnnexedGroup) []string {
	purpose := purposeOf(group.Name)
	if purpose == "" {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: clusters need this group to start (%s); adopt it only if annex can start without it", purpose)}
}

func validateMeta(group *kubeannex.AnnexedGroup) field.ErrorList {
	return apimachineryvalidation.ValidateObjectMeta(&group.ObjectMeta, false, apimachineryvalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

func validateMetaUpdate(group, old *kubeannex.AnnexedGroup) field.ErrorList {
	return apimachineryvalidation.ValidateObjectMetaUpdate(&group.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
}

// validateGroupName checks that the object's name is a group that may be adopted.
// Its form, beyond being a DNS subdomain, is the one that a
// CustomResourceDefinition demands of spec.group: at least one dot.
func validateGroupName(group *kubeannex.AnnexedGroup) field.ErrorList {
	path := field.NewPath("metadata", "name")
	name := group.Name
	switch {
	case isBuiltInGroup(name):
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("group %q is served by kube-apiserver itself and cannot be adopted: name a group of custom resources", name))}
	case isOwnGroup(name):
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("group %q belongs to annex and cannot be adopted: name a group of custom resources", name))}
	case !strings.Contains(name, "."):
		return field.ErrorList{field.Invalid(path, name, "must be an API group, a domain name with at least one dot, such as argoproj.io")}
	case isProtectedGroup(name) && !group.Spec.AllowProtectedGroup:
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("group %q is protected: set spec.allowProtectedGroup to true if it must be adopted", name))}
	}
	return nil
}

func validateSpec(spec *kubeannex.AnnexedGroupSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range spec.Resources {
		resource := &spec.Resources[i]
		itemPath := path.Child("resources").Index(i)
		errs = append(errs, validateResourceName(resource.Resource, seen, itemPath.Child("resource"))...)
		errs = append(errs, validateIndexLabels(resource.IndexLabels, itemPath.Child("indexLabels"))...)
		errs = append(errs, validateWatchIndex(resource.WatchIndex, itemPath.Child("watchIndex"))...)
		if count := countIndexes(resource); count > MaxIndexes {
			errs = append(errs, field.Invalid(itemPath, count, fmt.Sprintf("indexLabels and watchIndex name %d indexes, at most %d are allowed for a resource", count, MaxIndexes)))
		}
	}
	policies := []kubeannex.HostCopiesPolicy{kubeannex.HostCopiesRetain, kubeannex.HostCopiesPurge}
	if spec.HostCopies != "" && !slices.Contains(policies, spec.HostCopies) {
		errs = append(errs, field.NotSupported(path.Child("hostCopies"), spec.HostCopies, policies))
	}
	return errs
}

// validateResourceName checks a list-map key and adds it to seen. The form is the
// one that a CustomResourceDefinition demands of spec.names.plural.
func validateResourceName(name string, seen sets.Set[string], path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "name the resource by its plural, such as workflows")}
	}
	if seen.Has(name) {
		return field.ErrorList{field.Duplicate(path, name)}
	}
	seen.Insert(name)
	var errs field.ErrorList
	for _, message := range utilvalidation.IsDNS1035Label(name) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}

func validateIndexLabels(keys []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, key := range keys {
		if seen.Has(key) {
			errs = append(errs, field.Duplicate(path.Index(i), key))
			continue
		}
		seen.Insert(key)
		errs = append(errs, metav1validation.ValidateLabelName(key, path.Index(i))...)
	}
	return errs
}

func validateWatchIndex(index *kubeannex.WatchIndex, path *field.Path) field.ErrorList {
	switch {
	case index == nil:
		return nil
	case index.Field == "" && index.Label == "":
		return field.ErrorList{field.Required(path, "set exactly one of field and label")}
	case index.Field != "" && index.Label != "":
		return field.ErrorList{field.Invalid(path, index.Field+", "+index.Label, "set exactly one of field and label, not both")}
	case index.Label != "":
		return metav1validation.ValidateLabelName(index.Label, path.Child("label"))
	default:
		return validateFieldPath(index.Field, path.Child("field"))
	}
}

// validateFieldPath checks the form of a field selector's left side. Below
// metadata only name and namespace can be selected by: a CustomResourceDefinition
// refuses selectableFields there.
func validateFieldPath(fieldPath string, path *field.Path) field.ErrorList {
	simplePath := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*$`)
	metadataPath := regexp.MustCompile(`^metadata(\.|$)`)
	switch {
	case !simplePath.MatchString(fieldPath):
		return field.ErrorList{field.Invalid(path, fieldPath, "must be a simple path such as spec.nodeName or metadata.name, without a leading dot, brackets or quotes")}
	case fieldPath == "metadata.name", fieldPath == "metadata.namespace":
		return nil
	case metadataPath.MatchString(fieldPath):
		return field.ErrorList{field.Invalid(path, fieldPath, "of the metadata only metadata.name and metadata.namespace can be selected by")}
	}
	return nil
}

// countIndexes counts different indexes: a label that is both listed and the
// watch index is one index.
func countIndexes(resource *kubeannex.AnnexedResourceSpec) int {
	labels := sets.New(resource.IndexLabels...)
	count := labels.Len()
	if index := resource.WatchIndex; index != nil && (index.Label == "" || !labels.Has(index.Label)) {
		count++
	}
	return count
}

func validateStatus(status *kubeannex.AnnexedGroupStatus, path *field.Path) field.ErrorList {
	errs := validatePhase(status.Phase, path.Child("phase"))
	errs = append(errs, validateServing(status.Serving, path.Child("serving"))...)
	errs = append(errs, apimachineryvalidation.ValidateNonnegativeField(status.ObservedGeneration, path.Child("observedGeneration"))...)
	errs = append(errs, metav1validation.ValidateConditions(status.Conditions, path.Child("conditions"))...)
	errs = append(errs, validateFenceDuration(status.FenceDuration, path.Child("fenceDuration"))...)
	seen := sets.New[string]()
	for i := range status.Resources {
		resource := &status.Resources[i]
		itemPath := path.Child("resources").Index(i)
		errs = append(errs, validateResourceName(resource.Resource, seen, itemPath.Child("resource"))...)
		errs = append(errs, apimachineryvalidation.ValidateNonnegativeField(resource.Objects, itemPath.Child("objects"))...)
		errs = append(errs, apimachineryvalidation.ValidateNonnegativeField(resource.Bytes, itemPath.Child("bytes"))...)
		errs = append(errs, apimachineryvalidation.ValidateNonnegativeField(resource.Copied, itemPath.Child("copied"))...)
		errs = append(errs, apimachineryvalidation.ValidateNonnegativeField(resource.Verified, itemPath.Child("verified"))...)
	}
	return errs
}

func validatePhase(phase kubeannex.AnnexedGroupPhase, path *field.Path) field.ErrorList {
	phases := []kubeannex.AnnexedGroupPhase{
		kubeannex.PhasePending, kubeannex.PhasePreflight, kubeannex.PhaseMirroring, kubeannex.PhaseCopying,
		kubeannex.PhaseCatchingUp, kubeannex.PhaseFencing, kubeannex.PhaseVerifying, kubeannex.PhaseCuttingOver,
		kubeannex.PhaseUnfencing, kubeannex.PhaseAnnexed, kubeannex.PhaseReleasing, kubeannex.PhaseReleaseFencing,
		kubeannex.PhaseReleaseVerifying, kubeannex.PhaseReleaseCuttingOver, kubeannex.PhaseReleaseUnfencing,
		kubeannex.PhaseAborting, kubeannex.PhaseAborted,
	}
	if slices.Contains(phases, phase) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, phase, phases)}
}

func validateServing(mode kubeannex.ServingMode, path *field.Path) field.ErrorList {
	modes := []kubeannex.ServingMode{kubeannex.ServingClosed, kubeannex.ServingReadOnly, kubeannex.ServingOpen, kubeannex.ServingReleased}
	if mode == "" || slices.Contains(modes, mode) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, mode, modes)}
}

func validateFenceDuration(duration *metav1.Duration, path *field.Path) field.ErrorList {
	if duration == nil || duration.Duration >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, duration.Duration.String(), "must not be negative")}
}
