// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/definitionguard"
)

// pending makes sure that the AnnexedGroup cannot disappear while the group is
// on its way or in annex. A group that annex serves already, because an earlier
// AnnexedGroup lost its finalizer by hand, is taken up as it is.
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
	resources, err := r.hostResources(ctx, group.Name)
	if err != nil {
		return outcome{}, err
	}
	if result, resumed, err := r.resumeServed(ctx, group, resources); err != nil || resumed {
		return result, err
	}
	return next(kubeannexv1alpha1.PhasePreflight), nil
}

// resumeServed resumes a group that annex has served before, and returns whether it is one.
func (r *Reconciler) resumeServed(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, resources []resource) (result outcome, resumed bool, err error) {
	served, err := r.servedByAnnex(ctx, group.Name, resources)
	if err != nil || !served {
		return outcome{}, false, err
	}
	result, err = r.resume(ctx, group, resources)
	return result, true, err
}

// resume takes up a group that annex has served before, and all of it.
func (r *Reconciler) resume(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, resources []resource) (outcome, error) {
	// An earlier release may have opened the private route, and nobody looks at strays any more.
	if err := r.untouchDefinitions(ctx, group.Name); err != nil {
		return outcome{}, err
	}
	resetResources(group, resources)
	r.Recorder.Eventf(group, nil, "Normal", "Resumed", "Adopt", "Annex serves the group already, from an earlier adoption")
	setCondition(group, kubeannexv1alpha1.ConditionStrayWrites, metav1.ConditionUnknown, reasonUnsure, notVerified)
	return next(kubeannexv1alpha1.PhaseAnnexed), r.serve(ctx, group, kubeannexv1alpha1.ServingOpen)
}

// servedByAnnex says that all requests for the group go to annex, and that it has
// served all of it before: an unfinished copy is never taken for the group.
func (r *Reconciler) servedByAnnex(ctx context.Context, group string, resources []resource) (bool, error) {
	owned, err := r.registrar().Owned(ctx, group)
	if err != nil || len(owned) == 0 {
		return false, err
	}
	for _, gvr := range servedVersions(resources) {
		if !definitionguard.Routes(owned, gvr.Version) {
			return false, nil
		}
	}
	mirrors, err := listDefinitions(ctx, r.Connections.Annex, group)
	if err != nil {
		return false, err
	}
	for _, res := range resources {
		served := slices.ContainsFunc(mirrors, func(d apiextensionsv1.CustomResourceDefinition) bool {
			return d.Name == res.definition && isMirror(&d) && d.DeletionTimestamp == nil && d.Annotations[servedAnnotation] != ""
		})
		if !served {
			return false, nil
		}
	}
	return len(resources) > 0, nil
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
