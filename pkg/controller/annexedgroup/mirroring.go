// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// clearPause is when annex is looked at again whose definitions are being deleted.
const clearPause = 200 * time.Millisecond

// mirror gives annex the host's definitions, closed, on every replica.
func (r *Reconciler) mirror(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	if err := r.serve(ctx, group, kubeannexv1alpha1.ServingClosed); err != nil {
		return outcome{}, err
	}
	// Every kube-apiserver is known to have the guard when it holds the fence: that is
	// a later object of the same kind, of which it learns in order.
	if err := r.guardDefinitions(ctx); err != nil {
		return outcome{}, err
	}
	definitions, err := listDefinitions(ctx, r.Connections.Host, group.Name)
	if err != nil {
		return outcome{}, err
	}
	if len(definitions) == 0 || slices.ContainsFunc(resourcesOf(definitions), func(res resource) bool { return res.deleting }) {
		return next(kubeannexv1alpha1.PhasePreflight), nil
	}
	if err := r.removeMirrors(ctx, group.Name, definitions); err != nil {
		return outcome{}, err
	}
	for i := range definitions {
		if err := r.mirrorDefinition(ctx, &definitions[i], false); err != nil {
			return outcome{}, err
		}
	}
	if err := r.awaitReplicas(ctx, group.Name, false); err != nil {
		return outcome{}, err
	}
	setCondition(group, kubeannexv1alpha1.ConditionMirrored, metav1.ConditionTrue, "Mirrored", "Annex has the cluster's definitions")
	return next(kubeannexv1alpha1.PhaseCopying), nil
}

// hasMirrors says that annex still has definitions of the group that are copies of the host's.
func (r *Reconciler) hasMirrors(ctx context.Context, group string) (bool, error) {
	definitions, err := listDefinitions(ctx, r.Connections.Annex, group)
	if err != nil {
		return false, err
	}
	for i := range definitions {
		if isMirror(&definitions[i]) {
			return true, nil
		}
	}
	return false, nil
}

// clearAnnex drops annex's objects and definitions of the group, which is not
// served any more, and looks again until they are gone.
func (r *Reconciler) clearAnnex(ctx context.Context, group string) (outcome, error) {
	if err := r.dropImported(ctx, group); err != nil {
		return outcome{}, err
	}
	if err := r.removeMirrors(ctx, group, nil); err != nil {
		return outcome{}, err
	}
	return again(clearPause), nil
}

// errRouted keeps data that clients may be working with.
var errRouted = errors.New("annex's data of it may be the only present one and is not dropped: see \"Disaster recovery\" of the operations page")

// mustNotRoute fails while requests for the group go to annex. Everything that
// drops data of annex looks here first, whatever the status says.
func (r *Reconciler) mustNotRoute(ctx context.Context, group string) error {
	owned, err := r.registrar().Owned(ctx, group)
	if err != nil || len(owned) == 0 {
		return err
	}
	return fmt.Errorf("APIService %s routes the group to annex: %w", owned[0].Name, errRouted)
}

// removeMirrors deletes the definitions of a group in annex that are not among
// those to keep. It returns nil when they are on their way out, too.
func (r *Reconciler) removeMirrors(ctx context.Context, group string, keep []apiextensionsv1.CustomResourceDefinition) error {
	present, err := listDefinitions(ctx, r.Connections.Annex, group)
	if err != nil {
		return err
	}
	for i := range present {
		kept := slices.ContainsFunc(keep, func(d apiextensionsv1.CustomResourceDefinition) bool { return d.Name == present[i].Name })
		if kept || !isMirror(&present[i]) {
			continue
		}
		if err := r.mustNotRoute(ctx, group); err != nil {
			return err
		}
		err := r.Connections.Annex.Definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, present[i].Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting definition %s in annex: %w", present[i].Name, err)
		}
	}
	return nil
}
