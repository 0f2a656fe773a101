// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/digest"
)

const (
	// strayMargin is how long after the last request of before the cut-over the
	// host's copies are looked at for the last time.
	strayMargin = 5 * time.Second
	// maxNamedStrays bounds the length of a condition.
	maxNamedStrays = 10

	reasonWatching = "Watching"
	reasonNone     = "None"
	reasonFound    = "Found"

	notVerified = "The cluster's own copies were verified by an earlier adoption, whether they have changed since is not known"
)

// annexed looks for stray writes, closes the private route after that, and then
// keeps the group as the user wants it.
func (r *Reconciler) annexed(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	if err := r.mustBeAnnexed(ctx, group.Name); err != nil {
		return outcome{}, err
	}
	setCondition(group, kubeannexv1alpha1.ConditionAnnexed, metav1.ConditionTrue, "Annexed", "Annex serves the group")
	wait, done, err := r.watchStrays(ctx, group)
	if err != nil {
		return outcome{}, err
	}
	follow, err := r.followDefinitions(ctx, group)
	if err != nil {
		return outcome{}, err
	}
	replicas, err := r.replicas(ctx, group.Name)
	if err != nil {
		return outcome{}, err
	}
	showAdmission(group, replicas)
	showSpace(group, replicas)
	strays := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
	switch {
	case !done || strays.Reason == reasonWatching:
		return again(sooner(wait, follow)), nil
	case strays.Status == metav1.ConditionTrue:
		// The private route, by which they can be looked at, stays open, whoever applies the definitions.
		if err := r.changeDefinitions(ctx, group.Name, touched); err != nil {
			return outcome{}, err
		}
	}
	return again(follow), r.purge(ctx, group)
}

// watchStrays looks at the host's copies at once and when no request of before the cut-over can live any more. It
// returns when to look again, or that the last look is done.
func (r *Reconciler) watchStrays(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (wait time.Duration, done bool, err error) {
	condition := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
	if condition != nil && condition.Reason != reasonWatching {
		return 0, true, nil
	}
	since := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionAnnexed).LastTransitionTime.Time
	if condition != nil && condition.LastTransitionTime.After(since) {
		since = condition.LastTransitionTime.Time
	}
	left := since.Add(r.HostRequestTimeout + strayMargin).Sub(r.Clock.Now())
	if condition != nil && left > 0 {
		return left, false, nil
	}
	// After a change of a route the private one has to be opened again.
	if err := r.touchDefinitions(ctx, group.Name); err != nil {
		return 0, false, err
	}
	strays, err := r.strays(ctx, group)
	if err != nil {
		return 0, false, err
	}
	r.showStrays(group, strays, left > 0)
	if left > 0 {
		return left, false, nil
	}
	r.sessions.drop(group.Name)
	if strays != "" {
		return 0, true, nil // the private route is how they can be looked at
	}
	return 0, true, r.untouchDefinitions(ctx, group.Name)
}

// watchAgain lets the host's copies be looked at once more: clients reached them
// while an APIService did not name annex. The status is written at once.
func (r *Reconciler) watchAgain(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, services []string) error {
	message := fmt.Sprintf("APIService %s did not name annex, clients reached the cluster's own copies meanwhile: they are looked at again", strings.Join(services, ", "))
	r.Recorder.Eventf(group, nil, "Warning", "RouteRestored", "Route", "%s", message)
	meta.RemoveStatusCondition(&group.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
	setCondition(group, kubeannexv1alpha1.ConditionStrayWrites, metav1.ConditionUnknown, reasonWatching, message)
	return r.writeStatus(ctx, group)
}

// showStrays sets the condition. While it is not the last look the reason says so.
func (r *Reconciler) showStrays(group *kubeannexv1alpha1.AnnexedGroup, strays string, again bool) {
	status, reason, message := metav1.ConditionFalse, reasonNone, "The cluster's own copies stayed as they were verified"
	if !slices.ContainsFunc(group.Status.Resources, func(s kubeannexv1alpha1.AnnexedResourceStatus) bool { return s.HostDigest != "" }) {
		status, reason, message = metav1.ConditionUnknown, reasonUnsure, notVerified
	}
	if strays != "" {
		status, reason = metav1.ConditionTrue, reasonFound
		message = "The cluster's own copies changed after they were verified, these changes are not in annex, compare and repeat them: " + strays
		r.Recorder.Eventf(group, nil, "Warning", "StrayWrites", "Verify", "%s", message)
	}
	if again {
		reason = reasonWatching
	}
	setCondition(group, kubeannexv1alpha1.ConditionStrayWrites, status, reason, message)
}

// strays names what differs between the host's copies and what was verified; it is empty when nothing does.
func (r *Reconciler) strays(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (string, error) {
	resources, err := r.hostResources(ctx, group.Name)
	if err != nil {
		return "", err
	}
	s := r.sessions.get(group)
	var found []string
	for _, res := range resources {
		verified := resourceStatus(group, res.plural).HostDigest
		var present digest.Set
		comparison := newLedger().compare()
		if s != nil && s.ledgers[res.plural] != nil {
			comparison = s.ledgers[res.plural].compare()
		}
		err := eachMetadata(ctx, r.Connections.Host, res.private(), func(items []metav1.PartialObjectMetadata) {
			comparison.add(items)
			for i := range items {
				present.Add(identityOf(keyOf(&items[i]), items[i].UID, items[i].ResourceVersion))
			}
		})
		if err != nil {
			return "", err
		}
		switch {
		case present.String() == verified, verified == "" && present.Objects == 0:
			continue
		case verified == "":
			found = append(found, res.plural+" (what they were is not known)")
			continue
		}
		found = append(found, res.plural+strayNames(s, comparison))
	}
	return strings.Join(found, "; "), nil
}

// strayNames lists the objects, as far as this process knows what they were.
func strayNames(s *session, c *comparison) string {
	if s == nil {
		return ""
	}
	return " (" + firstNames(append(c.gone(), c.changed...)) + ")"
}

// firstNames lists the first of names in their order, and says how many more there are. It sorts names.
func firstNames(names []string) string {
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), maxNamedStrays)], ", ")
	if more := len(names) - maxNamedStrays; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
