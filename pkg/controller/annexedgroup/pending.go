// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// pending makes sure that the AnnexedGroup cannot disappear while the group is
// on its way or in annex.
func (r *Reconciler) pending(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	r.sessions.drop(group.Name)
	if !slices.Contains(group.Finalizers, kubeannexv1alpha1.ReleaseFinalizer) {
		kept := group.DeepCopy()
		kept.Finalizers = append(kept.Finalizers, kubeannexv1alpha1.ReleaseFinalizer)
		updated, err := r.Connections.Annex.Groups.KubeannexV1alpha1().AnnexedGroups().Update(ctx, kept, metav1.UpdateOptions{})
		if err != nil {
			return outcome{}, fmt.Errorf("adding the finalizer: %w", err)
		}
		group.ObjectMeta = updated.ObjectMeta
	}
	return next(kubeannexv1alpha1.PhasePreflight), nil
}

// removeReleaseFinalizer lets the AnnexedGroup go.
func (r *Reconciler) removeReleaseFinalizer(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) error {
	if !slices.Contains(group.Finalizers, kubeannexv1alpha1.ReleaseFinalizer) {
		return nil
	}
	free := group.DeepCopy()
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == kubeannexv1alpha1.ReleaseFinalizer })
	updated, err := r.Connections.Annex.Groups.KubeannexV1alpha1().AnnexedGroups().Update(ctx, free, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	group.ObjectMeta = updated.ObjectMeta
	return nil
}
