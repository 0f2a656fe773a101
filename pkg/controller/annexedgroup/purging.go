// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/digest"
)

// Reasons of the condition HostCopiesPurged.
const (
	reasonPurged  = "Purged"
	reasonPurging = "Purging"
	reasonChanged = "Changed"
	reasonUnsure  = "NotVerified"
)

// purge deletes the copies that the host keeps of a group that is annexed, when
// the user asks for it. No client sees it: all their requests and watches are at
// annex, which is looked at again on every kube-apiserver before anything is
// deleted. Webhooks and policies that match all resources do see the deletions,
// in the private version. Once the first copy may have gone the condition says
// so, and a purge that was interrupted goes on.
func (r *Reconciler) purge(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) error {
	condition := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionHostCopiesPurged)
	begun := condition != nil && condition.Reason == reasonPurging
	if group.Spec.HostCopies != kubeannexv1alpha1.HostCopiesPurge && !begun {
		if condition != nil && condition.Status == metav1.ConditionFalse {
			meta.RemoveStatusCondition(&group.Status.Conditions, kubeannexv1alpha1.ConditionHostCopiesPurged)
		}
		return nil
	}
	if condition != nil && (condition.Status == metav1.ConditionTrue || !begun && condition.ObservedGeneration == group.Generation) {
		return nil // done, or refused until the spec changes
	}
	resources, err := r.hostResources(ctx, group.Name)
	if err != nil {
		return err
	}
	if err := r.confirmAnnexed(ctx, group.Name, resources); err != nil {
		return err
	}
	if err := r.openCopies(ctx, group.Name, ""); err != nil {
		return err
	}
	if !begun {
		refusal, err := r.purgeRefusal(ctx, group, resources)
		if err != nil {
			return err
		}
		if refusal != nil {
			if !meta.IsStatusConditionTrue(group.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites) {
				err = r.untouchDefinitions(ctx, group.Name)
			}
			if err != nil {
				return err
			}
			meta.SetStatusCondition(&group.Status.Conditions, *refusal)
			r.Recorder.Eventf(group, nil, "Warning", "PurgeRefused", "Purge", "%s", refusal.Message)
			return nil
		}
	}
	deleted, err := r.purgeAll(ctx, group, resources)
	if err != nil {
		return err
	}
	if err := r.untouchDefinitions(ctx, group.Name); err != nil {
		return err
	}
	setCondition(group, kubeannexv1alpha1.ConditionHostCopiesPurged, metav1.ConditionTrue, reasonPurged,
		"The cluster keeps no copies: a release gives all objects new UIDs and needs spec.allowNewUIDs")
	r.Recorder.Eventf(group, nil, "Normal", "Purged", "Purge", "The cluster's copies were deleted, %d objects since the controller took this up", deleted)
	return nil
}

// confirmAnnexed makes sure that every kube-apiserver routes the group to annex.
func (r *Reconciler) confirmAnnexed(ctx context.Context, group string, resources []resource) error {
	revision, err := r.annexRevision(ctx, group)
	if err != nil {
		return err
	}
	return r.confirmRoute(ctx, resources, revision)
}

func (r *Reconciler) purgeAll(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, resources []resource) (deleted int, err error) {
	const kind = kubeannexv1alpha1.ConditionHostCopiesPurged
	setCondition(group, kind, metav1.ConditionFalse, reasonPurging, "The cluster's copies are being deleted")
	if err := r.writeStatus(ctx, group); err != nil {
		return 0, err
	}
	progress := r.newReporter(group)
	for _, res := range resources {
		err := r.deleteCopies(ctx, res, func(ctx context.Context, more int) error {
			deleted += more
			setCondition(group, kind, metav1.ConditionFalse, reasonPurging, fmt.Sprintf("The cluster's copies are being deleted, %d so far", deleted))
			return progress.report(ctx)
		})
		if err != nil {
			return deleted, err
		}
		resourceStatus(group, res.plural).HostDigest = digest.Set{}.String()
	}
	return deleted, nil
}

// purgeRefusal is the condition that tells why nothing may be deleted; nil when everything may.
func (r *Reconciler) purgeRefusal(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, resources []resource) (*metav1.Condition, error) {
	var changed, unsure []string
	for _, res := range resources {
		verified := resourceStatus(group, res.plural).HostDigest
		copies, present, err := r.listCopies(ctx, res)
		switch {
		case err != nil:
			return nil, err
		case present.Objects == 0, present.String() == verified:
		case verified == "":
			unsure = append(unsure, fmt.Sprintf("%d %s", present.Objects, res.plural))
		default:
			changed = append(changed, res.plural+": "+latestCopies(copies))
		}
	}
	if len(changed)+len(unsure) == 0 {
		return nil, nil
	}
	refusal := &metav1.Condition{
		Type: kubeannexv1alpha1.ConditionHostCopiesPurged, Status: metav1.ConditionFalse, ObservedGeneration: group.Generation,
		Reason: reasonUnsure, Message: "The cluster has copies that were never verified, look at them through version " + kubeannexv1alpha1.PrivateVersion + " or release the group: " + strings.Join(unsure, ", "),
	}
	if len(changed) > 0 {
		refusal.Reason = reasonChanged
		refusal.Message = "The cluster's copies are not what was verified, compare them with annex, then release the group or set hostCopies to Retain and to Purge again after mending them, last written were " + strings.Join(changed, "; ")
	}
	return refusal, nil
}

// copyMetadata is what is told of a copy.
type copyMetadata struct {
	key      string
	revision uint64
}

func (r *Reconciler) listCopies(ctx context.Context, res resource) ([]copyMetadata, digest.Set, error) {
	var copies []copyMetadata
	var present digest.Set
	err := eachMetadata(ctx, r.Connections.Host, res.private(), func(items []metav1.PartialObjectMetadata) {
		for i := range items {
			key := keyOf(&items[i])
			present.Add(identityOf(key, items[i].UID, items[i].ResourceVersion))
			revision, _ := strconv.ParseUint(items[i].ResourceVersion, 10, 64)
			copies = append(copies, copyMetadata{key: key, revision: revision})
		}
	})
	return copies, present, err
}

// latestCopies names the copies that were written last, the latest first. The
// digest tells that something changed, not what; a changed copy is among these.
func latestCopies(copies []copyMetadata) string {
	copies = slices.SortedFunc(slices.Values(copies), func(a, b copyMetadata) int {
		return cmp.Or(cmp.Compare(b.revision, a.revision), cmp.Compare(a.key, b.key))
	})
	var names []string
	for _, c := range copies[:min(len(copies), maxNamedStrays)] {
		names = append(names, c.key)
	}
	return fmt.Sprintf("%s (%d objects)", strings.Join(names, ", "), len(copies))
}

// openCopies opens the private route of all resources of a group for writing, on
// every kube-apiserver. Revision is noted on the definitions unless it is empty.
func (r *Reconciler) openCopies(ctx context.Context, group, revision string) error {
	return r.openPrivate(ctx, group, opened(revision))
}
