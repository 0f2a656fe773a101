// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

const (
	// conversionAnnotation keeps the conversion of a definition of the host while
	// the private version is there, as JSON. No webhook could convert to that version.
	conversionAnnotation = "kubeannex.io/conversion"
	// mirrorAnnotation marks a definition in annex as the copy of one of the host. Its value is that one's UID.
	mirrorAnnotation = "kubeannex.io/mirror-of"
	// servedAnnotation marks a definition in annex whose group annex has served.
	servedAnnotation = "kubeannex.io/served"
	// privateDescription is the description of the schema of the private version.
	privateDescription = "What the cluster itself keeps of a resource that annex serves. Only annex uses this version."
)

// touched returns a definition of the host with the private version, a
// finalizer, and no conversion. Any such change also makes kube-apiserver end
// all watches of the resource. It fails when the private version is somebody else's.
func touched(definition *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition = definition.DeepCopy()
	if !slices.Contains(definition.Finalizers, kubeannexv1alpha1.DefinitionFinalizer) {
		definition.Finalizers = append(definition.Finalizers, kubeannexv1alpha1.DefinitionFinalizer)
	}
	if hasPrivateVersion(definition) {
		return definition, nil
	}
	storage := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if storage < 0 {
		return nil, fmt.Errorf("definition %s has no storage version", definition.Name)
	}
	private := *definition.Spec.Versions[storage].DeepCopy()
	makePrivate(&private)
	definition.Spec.Versions = append(definition.Spec.Versions, private)
	if conversion := definition.Spec.Conversion; conversion != nil && conversion.Strategy != apiextensionsv1.NoneConverter {
		kept, err := json.Marshal(conversion)
		if err != nil {
			return nil, fmt.Errorf("encoding the conversion of %s: %w", definition.Name, err)
		}
		definition.Annotations = maps.Clone(definition.Annotations)
		if definition.Annotations == nil {
			definition.Annotations = map[string]string{}
		}
		definition.Annotations[conversionAnnotation] = string(kept)
		definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	}
	return definition, nil
}

// makePrivate makes a copy of the storage version the private version. It differs
// from every other in its schema and in its selectable fields, by which nobody
// selects here: kube-apiserver moves schemas that are all the same out of the
// versions, and fields likewise, and refuses fields whose schema is not where they are
// (Convert_v1_CustomResourceDefinitionSpec_To_apiextensions_CustomResourceDefinitionSpec
// in k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/conversion.go). So
// neither may depend on whether somebody changes the other versions later.
func makePrivate(version *apiextensionsv1.CustomResourceDefinitionVersion) {
	version.Name, version.Served, version.Storage = kubeannexv1alpha1.PrivateVersion, true, false
	version.Deprecated, version.DeprecationWarning = false, nil
	version.SelectableFields = nil
	if version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
		version.Schema.OpenAPIV3Schema.Description = privateDescription
	}
}

// untouched takes back what touched did, except for the finalizer. A conversion
// that somebody has set in the meantime stays.
func untouched(definition *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition = definition.DeepCopy()
	definition.Spec.Versions = slices.DeleteFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == kubeannexv1alpha1.PrivateVersion
	})
	kept, ok := definition.Annotations[conversionAnnotation]
	if !ok {
		return definition, nil
	}
	delete(definition.Annotations, conversionAnnotation)
	if len(definition.Annotations) == 0 {
		definition.Annotations = nil
	}
	if definition.Spec.Conversion != nil && definition.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		return definition, nil
	}
	conversion := &apiextensionsv1.CustomResourceConversion{}
	if err := json.Unmarshal([]byte(kept), conversion); err != nil {
		return nil, fmt.Errorf("decoding annotation %s of definition %s: %w: write its spec.conversion back and remove the annotation", conversionAnnotation, definition.Name, err)
	}
	definition.Spec.Conversion = conversion
	return definition, nil
}

func hasPrivateVersion(definition *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == kubeannexv1alpha1.PrivateVersion
	})
}

// mirrorOf is what annex's definition must be for one of the host.
func mirrorOf(definition *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	original, err := untouched(definition)
	if err != nil {
		return nil, err
	}
	annotations := maps.Clone(original.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[mirrorAnnotation] = string(definition.UID)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: original.Name, Labels: original.Labels, Annotations: annotations},
		Spec:       original.Spec,
	}, nil
}

// isMirror says that a definition of annex was made by mirrorOf.
func isMirror(definition *apiextensionsv1.CustomResourceDefinition) bool {
	return definition.Annotations[mirrorAnnotation] != ""
}

// mirrorDefinition brings annex's definition to what the host's is. The mark of
// one that annex has served is kept or, before a copy, taken off.
func (r *Reconciler) mirrorDefinition(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition, keepMark bool) error {
	wanted, err := mirrorOf(definition)
	if err != nil {
		return err
	}
	definitions := r.Connections.Annex.Definitions.ApiextensionsV1().CustomResourceDefinitions()
	stored, err := definitions.Get(ctx, wanted.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = definitions.Create(ctx, wanted, metav1.CreateOptions{})
	} else if err == nil {
		updated := stored.DeepCopy()
		if mark := stored.Annotations[servedAnnotation]; mark != "" && keepMark {
			wanted.Annotations[servedAnnotation] = mark
		}
		updated.Labels, updated.Annotations, updated.Spec = wanted.Labels, wanted.Annotations, wanted.Spec
		if apiequality.Semantic.DeepEqual(stored, updated) {
			return nil
		}
		_, err = definitions.Update(ctx, updated, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("mirroring definition %s to annex: %w", wanted.Name, err)
	}
	return nil
}

// changeDefinitions applies a change to every definition of a group at the host.
func (r *Reconciler) changeDefinitions(ctx context.Context, group string, change change) error {
	listed, err := listDefinitions(ctx, r.Connections.Host, group)
	if err != nil {
		return err
	}
	definitions := r.Connections.Host.Definitions.ApiextensionsV1().CustomResourceDefinitions()
	for i := range listed {
		current := &listed[i]
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			changed, err := change(current)
			if err != nil || apiequality.Semantic.DeepEqual(current, changed) {
				return err
			}
			if _, err = definitions.Update(ctx, changed, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
				if fresh, getErr := definitions.Get(ctx, current.Name, metav1.GetOptions{}); getErr == nil {
					current = fresh
				}
			}
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("changing definition %s of the cluster: %w", current.Name, err)
		}
	}
	return nil
}

// touchDefinitions opens the private route to the host's copies of a group and
// waits until every kube-apiserver has it. Watches of the group end there.
func (r *Reconciler) touchDefinitions(ctx context.Context, group string) error {
	return r.openPrivate(ctx, group, touched)
}

// openPrivate applies a change that opens the private route of all resources of a
// group, and waits until every kube-apiserver has it.
func (r *Reconciler) openPrivate(ctx context.Context, group string, change change) error {
	if err := r.changeDefinitions(ctx, group, change); err != nil {
		return err
	}
	resources, err := r.hostResources(ctx, group)
	if err != nil {
		return err
	}
	return r.awaitPrivate(ctx, resources)
}

// untouchDefinitions closes the private route again.
func (r *Reconciler) untouchDefinitions(ctx context.Context, group string) error {
	return r.changeDefinitions(ctx, group, untouched)
}
