// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/definitionguard"
	"github.com/kubeannex/annex/pkg/controller/routeguard"
	"github.com/kubeannex/annex/pkg/digest"
	"github.com/kubeannex/annex/pkg/gone"
)

// reasonOrphaned is why annex does not have the cluster's definitions: it has more.
const reasonOrphaned = "Orphaned"

// followPause is when definitions are looked at again whose deletion takes time.
const followPause = time.Second

func (r *Reconciler) registrar() *definitionguard.Registrar {
	return &definitionguard.Registrar{
		Client: r.Connections.Host.APIServices, Service: r.Connections.AnnexService, CA: r.Connections.AnnexCA, Clock: r.Clock,
	}
}

// guardDefinitions puts the guards over the definitions and APIServices of all
// groups that need them, by what is stored of them, and takes them away with the last.
func (r *Reconciler) guardDefinitions(ctx context.Context) error {
	r.releases.guard.Lock()
	defer r.releases.guard.Unlock()
	groups, err := r.Connections.Annex.Groups.KubeannexV1alpha1().AnnexedGroups().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing AnnexedGroups: %w", err)
	}
	var guarded []string
	for i := range groups.Items {
		if definitionguard.Guarded(&groups.Items[i]) {
			guarded = append(guarded, groups.Items[i].Name)
		}
	}
	guard := &definitionguard.Guard{
		Client: r.Connections.Host.Kube, Webhook: r.Connections.WebhookClient(), Username: r.Connections.Username,
	}
	routes := &routeguard.Guard{Client: r.Connections.Host.Kube, Service: r.Connections.AnnexService, Username: r.Connections.Username}
	needed := len(guarded) > 0
	if !needed {
		// A group whose AnnexedGroup is lost needs it most.
		if needed, err = r.registrar().RoutesAny(ctx); err != nil {
			return err
		}
	}
	if needed {
		err = routes.Ensure(ctx)
	} else {
		err = routes.Remove(ctx)
	}
	if err != nil {
		return err
	}
	return guard.Apply(ctx, guarded)
}

// followDefinitions brings the cluster's present definitions of a group that is
// annexed to annex: schemas, versions, new kinds, deletions. It returns when to
// look again, zero when nothing is under way.
func (r *Reconciler) followDefinitions(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (time.Duration, error) {
	if err := r.guardDefinitions(ctx); err != nil {
		return 0, err
	}
	if err := r.changeDefinitions(ctx, group.Name, held); err != nil {
		return 0, err
	}
	definitions, err := listDefinitions(ctx, r.Connections.Host, group.Name)
	if err != nil {
		return 0, err
	}
	var leaving []string
	for i := range definitions {
		if definitions[i].DeletionTimestamp == nil {
			err = r.followDefinition(ctx, group, &definitions[i])
		} else if gone, followErr := r.followDeletion(ctx, group, &definitions[i]); !gone {
			leaving, err = append(leaving, definitions[i].Name), followErr
		}
		if err != nil {
			setCondition(group, kubeannexv1alpha1.ConditionMirrored, metav1.ConditionFalse, "Failed", oneLine(err))
			return 0, err
		}
	}
	if len(leaving) == 0 {
		// Discovery is read again by what routeVersions writes, so annex must know the definitions before.
		if err := r.awaitReplicas(ctx, group.Name, false); err != nil {
			setCondition(group, kubeannexv1alpha1.ConditionMirrored, metav1.ConditionFalse, "Failed", oneLine(err))
			return 0, err
		}
	}
	mirrors, err := listDefinitions(ctx, r.Connections.Annex, group.Name)
	if err != nil {
		return 0, err
	}
	orphans := orphansOf(mirrors, definitions)
	if err := r.routeVersions(ctx, group, append(definitions, orphans...)); err != nil {
		return 0, err
	}
	if err := r.markServed(ctx, mirrors); err != nil {
		return 0, err
	}
	return showMirrored(group, leaving, namesOf(orphans)), nil
}

func namesOf(definitions []apiextensionsv1.CustomResourceDefinition) []string {
	var names []string
	for i := range definitions {
		names = append(names, definitions[i].Name)
	}
	return names
}

// markServed notes on annex's definitions of a group that annex has served it:
// what it has of it is whole, which no copy is before its cut-over.
func (r *Reconciler) markServed(ctx context.Context, mirrors []apiextensionsv1.CustomResourceDefinition) error {
	for i := range mirrors {
		if !isMirror(&mirrors[i]) || mirrors[i].Annotations[servedAnnotation] != "" {
			continue
		}
		mirrors[i].Annotations[servedAnnotation] = "true"
		_, err := r.Connections.Annex.Definitions.ApiextensionsV1().CustomResourceDefinitions().Update(ctx, &mirrors[i], metav1.UpdateOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("marking definition %s in annex: %w", mirrors[i].Name, err)
		}
	}
	return nil
}

func showMirrored(group *kubeannexv1alpha1.AnnexedGroup, leaving, orphans []string) time.Duration {
	const kind = kubeannexv1alpha1.ConditionMirrored
	switch {
	case len(leaving) > 0:
		setCondition(group, kind, metav1.ConditionFalse, "Deleting", fmt.Sprintf(
			"Definitions are being deleted, first in annex, where objects with finalizers wait for their controllers: %s", strings.Join(leaving, ", ")))
		return followPause
	case len(orphans) > 0:
		setCondition(group, kind, metav1.ConditionFalse, reasonOrphaned, fmt.Sprintf(
			"Annex has definitions that the cluster lost, and keeps their objects, create them again in the cluster or delete them in annex: %s", strings.Join(orphans, ", ")))
	default:
		setCondition(group, kind, metav1.ConditionTrue, "Mirrored", "Annex has the cluster's definitions")
	}
	return 0
}

// errRestored stops a controller that would route a group to data of the past.
var errRestored = errors.New("nothing in the cluster says that annex serves the group, so one of the etcds was restored to before an adoption or release: see \"Disaster recovery\" of the operations page")

// mustBeAnnexed looks for a trace of the adoption in the cluster: an APIService
// that names annex, or the finalizer of a definition. A release leaves neither.
// It is asked before a step that leaves such traces itself.
func (r *Reconciler) mustBeAnnexed(ctx context.Context, group string) error {
	definitions, err := listDefinitions(ctx, r.Connections.Host, group)
	if err != nil || len(definitions) == 0 {
		return err
	}
	for i := range definitions {
		if slices.Contains(definitions[i].Finalizers, kubeannexv1alpha1.DefinitionFinalizer) {
			return nil
		}
	}
	owned, err := r.registrar().Owned(ctx, group)
	if err == nil && len(owned) == 0 {
		err = errRestored
	}
	return err
}

// held returns a definition with the finalizer that makes its deletion wait for annex.
func held(definition *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition = definition.DeepCopy()
	if definition.DeletionTimestamp == nil && !slices.Contains(definition.Finalizers, kubeannexv1alpha1.DefinitionFinalizer) {
		definition.Finalizers = append(definition.Finalizers, kubeannexv1alpha1.DefinitionFinalizer)
	}
	return definition, nil
}

// unheld takes the finalizer off.
func unheld(definition *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition = definition.DeepCopy()
	definition.Finalizers = slices.DeleteFunc(definition.Finalizers, func(f string) bool { return f == kubeannexv1alpha1.DefinitionFinalizer })
	delete(definition.Annotations, releaseRevisionAnnotation)
	return definition, nil
}

// followDefinition mirrors one definition. A version that was dropped from
// storedVersions, after all objects had been written again through the API and so
// in annex, is dropped in annex too: it could not be removed from the spec otherwise.
func (r *Reconciler) followDefinition(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, definition *apiextensionsv1.CustomResourceDefinition) error {
	definitions := r.Connections.Annex.Definitions.ApiextensionsV1().CustomResourceDefinitions()
	stored, err := definitions.Get(ctx, definition.Name, metav1.GetOptions{})
	switch {
	case gone.Object(err, definition.Name):
		// Of a kind that is new the cluster has no copies.
		resourceStatus(group, definition.Spec.Names.Plural).HostDigest = digest.Set{}.String()
	case err != nil:
		return fmt.Errorf("reading definition %s of annex: %w", definition.Name, err)
	case stored.DeletionTimestamp != nil:
		return fmt.Errorf("annex still deletes an earlier definition %s: it is mirrored when that is done", definition.Name)
	default:
		if left := keptVersions(stored.Status.StoredVersions, definition.Status.StoredVersions); len(left) < len(stored.Status.StoredVersions) {
			stored.Status.StoredVersions = left
			if _, err := definitions.UpdateStatus(ctx, stored, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("dropping stored versions of definition %s in annex: %w", definition.Name, err)
			}
		}
	}
	return r.mirrorDefinition(ctx, definition, true)
}

// keptVersions are the stored versions of annex that the cluster lists, too.
// None in common means that the cluster has not said anything yet.
func keptVersions(annex, cluster []string) []string {
	var kept []string
	for _, version := range annex {
		if slices.Contains(cluster, version) {
			kept = append(kept, version)
		}
	}
	if len(kept) == 0 {
		return annex
	}
	return kept
}

// followDeletion deletes a definition with its objects in annex and only then
// lets the cluster's go. It returns whether it did.
func (r *Reconciler) followDeletion(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, definition *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	if !slices.Contains(definition.Finalizers, kubeannexv1alpha1.DefinitionFinalizer) {
		return true, nil
	}
	definitions := r.Connections.Annex.Definitions.ApiextensionsV1().CustomResourceDefinitions()
	stored, err := definitions.Get(ctx, definition.Name, metav1.GetOptions{})
	if err != nil && !gone.Object(err, definition.Name) {
		return false, fmt.Errorf("reading definition %s of annex: %w", definition.Name, err)
	}
	if err == nil {
		if stored.DeletionTimestamp == nil {
			err = definitions.Delete(ctx, definition.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(stored.UID))})
		}
		if err != nil && !gone.Object(err, definition.Name) {
			return false, fmt.Errorf("deleting definition %s in annex: %w", definition.Name, err)
		}
		return false, nil
	}
	if slices.Contains(definition.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		if err := r.forgetCopies(ctx, definition); err != nil {
			return false, err
		}
	}
	if err := r.changeDefinition(ctx, definition.Name, unheld); err != nil {
		return false, err
	}
	plural := definition.Spec.Names.Plural
	group.Status.Resources = slices.DeleteFunc(group.Status.Resources, func(s kubeannexv1alpha1.AnnexedResourceStatus) bool { return s.Resource == plural })
	r.Recorder.Eventf(group, nil, "Normal", "DefinitionDeleted", "Mirror", "Definition %s was deleted with its objects in annex and in the cluster", definition.Name)
	return true, nil
}

// forgetCopies deletes the copies that the cluster keeps of a resource whose
// definition goes. kube-apiserver deletes them itself, but cannot finish when
// they have finalizers: nobody takes care of those any more.
func (r *Reconciler) forgetCopies(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition) error {
	if err := r.changeDefinition(ctx, definition.Name, opened("")); err != nil {
		return err
	}
	res := resourceOf(definition)
	if err := r.awaitPrivate(ctx, []resource{res}); err != nil {
		return err
	}
	return r.deleteCopies(ctx, res, func(context.Context, int) error { return nil })
}

// routeVersions makes the APIServices of all served versions annex's, and only
// those. That some were not is stored before it is mended.
func (r *Reconciler) routeVersions(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, definitions []apiextensionsv1.CustomResourceDefinition) error {
	var seen digest.Set
	for i := range definitions {
		seen.Add(digest.OfBytes(fmt.Appendf(nil, "%s %d", definitions[i].UID, definitions[i].Generation)))
	}
	registrar := r.registrar()
	owned, err := registrar.Owned(ctx, group.Name)
	if err != nil {
		return err
	}
	versions := servedVersions(resourcesOf(definitions))
	var served, lost []string
	for _, version := range versions {
		served = append(served, version.Version)
		if !definitionguard.Routes(owned, version.Version) {
			lost = append(lost, definitionguard.Name(version.GroupVersion()))
		}
	}
	if len(lost) > 0 {
		if err := r.watchAgain(ctx, group, lost); err != nil {
			return err
		}
	}
	if err := r.mustLead(ctx); err != nil {
		return err
	}
	for _, version := range versions {
		if err := registrar.Keep(ctx, version.GroupVersion(), seen.String()); err != nil {
			return err
		}
	}
	if len(lost) > 0 {
		// Watches that began at the cluster meanwhile are silent until its definitions change.
		if err := r.untouchDefinitions(ctx, group.Name); err != nil {
			return err
		}
		if err := r.touchDefinitions(ctx, group.Name); err != nil {
			return err
		}
	}
	return registrar.Prune(ctx, group.Name, served)
}

// orphansOf are the mirrors in annex whose definition the cluster has no more.
func orphansOf(mirrors, definitions []apiextensionsv1.CustomResourceDefinition) []apiextensionsv1.CustomResourceDefinition {
	var orphans []apiextensionsv1.CustomResourceDefinition
	for i := range mirrors {
		known := slices.ContainsFunc(definitions, func(d apiextensionsv1.CustomResourceDefinition) bool { return d.Name == mirrors[i].Name })
		if !known && isMirror(&mirrors[i]) && mirrors[i].DeletionTimestamp == nil {
			orphans = append(orphans, mirrors[i])
		}
	}
	return orphans
}

// sooner is the smaller of two pauses, of which zero means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
