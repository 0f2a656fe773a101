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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// release writes what changed in annex to the host's copies, while annex serves
// the group, until little is left.
func (r *Reconciler) release(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	if err := r.serve(ctx, group, kubeannexv1alpha1.ServingOpen); err != nil {
		return outcome{}, err
	}
	setCondition(group, kubeannexv1alpha1.ConditionAnnexed, metav1.ConditionTrue, "Releasing", "Annex serves the group until it is released")
	if wait, done, err := r.mayRelease(ctx, group); err != nil || !done {
		return again(wait), err
	}
	s, err := r.releaseSession(ctx, group)
	if err != nil {
		return outcome{}, err
	}
	if wait := s.notBefore.Sub(r.Clock.Now()); wait > 0 {
		return again(wait), nil
	}
	if err := r.refuseNewUIDs(ctx, group, s); err != nil {
		return outcome{}, err
	}
	progress, last := r.newReporter(group), 0
	for i := range maxRounds {
		differences, err := r.releaseRound(ctx, group, s)
		if err != nil {
			return outcome{}, err
		}
		if err := progress.report(ctx); err != nil {
			return outcome{}, err
		}
		if differences <= smallRound || i > 0 && differences*5 > last*4 {
			break
		}
		last = differences
	}
	if len(s.owners) > 0 {
		if s.dependents, err = r.repairable(ctx, group.Name, s.owners); err != nil {
			return outcome{}, err
		}
		// Here it costs no time of writers.
		if err := r.holdCollector(ctx, group.Name, s.dependents); err != nil {
			return outcome{}, err
		}
	}
	// Writers must not wait for a replica that takes long to end.
	if r.Connections.AnnexLeaving != nil {
		leaving, err := r.Connections.AnnexLeaving(ctx)
		if err != nil {
			return outcome{}, err
		}
		if len(leaving) > 0 {
			return outcome{}, fmt.Errorf("%s ends and may have writes in hand: wait, or delete its pod with --force if its node is lost", leaving[0].Name)
		}
	}
	return next(kubeannexv1alpha1.PhaseReleaseFencing), nil
}

// mayRelease looks at what a release would lose. It returns when to look again,
// or that everything was looked at; what speaks against the release is an error.
func (r *Reconciler) mayRelease(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (wait time.Duration, done bool, err error) {
	if err := r.mustBeAnnexed(ctx, group.Name); err != nil {
		return 0, false, err
	}
	if wait, err := r.followDefinitions(ctx, group); err != nil || wait > 0 {
		return wait, false, err
	}
	if mirrored := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionMirrored); mirrored != nil && mirrored.Reason == reasonOrphaned {
		// The release would drop their objects, which have no place in the cluster.
		return 0, false, fmt.Errorf("%w: %s", errOrphans, mirrored.Message)
	}
	// A write of before the adoption may be late, or have come while a route was taken away:
	// what the release overwrites is looked at first.
	if wait, done, err := r.watchStrays(ctx, group); err != nil || !done {
		return wait, false, err
	}
	if found := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites); found != nil &&
		found.Status == metav1.ConditionTrue && !group.Spec.DiscardStrayWrites {
		return 0, false, fmt.Errorf("%s: %w", found.Message, errStrayWrites)
	}
	return 0, true, nil
}

// releaseSession opens the private route and reads the host's copies, unless this process did.
func (r *Reconciler) releaseSession(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (*releaseSession, error) {
	// Every revision of the host up to this one is older than what the release writes.
	list, err := r.Connections.Host.Definitions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's revision: %w", err)
	}
	if err := r.openCopies(ctx, group.Name, list.ResourceVersion); err != nil {
		return nil, err
	}
	definitions, err := listDefinitions(ctx, r.Connections.Host, group.Name)
	if err != nil {
		return nil, err
	}
	resources := resourcesOf(definitions)
	s := r.releases.get(group)
	if s == nil || !slices.EqualFunc(s.resources, resources, func(a, b resource) bool {
		return a.definition == b.definition && a.uid == b.uid && a.generation == b.generation
	}) {
		s = r.releases.start(group, definitions)
	}
	for _, c := range s.copies {
		if c.loaded {
			continue
		}
		c.copies = map[string]copied{}
		err := eachPage(ctx, r.Connections.Host, c.resource.private(), func(_ context.Context, page page) error {
			for i := range page.items {
				if err := c.put(&page.items[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		c.loaded = true
	}
	return s, nil
}

// errOrphans refuses a release.
var errOrphans = errors.New("the group cannot be released whole")

// errStrayWrites refuses a release: it would overwrite or delete what nobody has looked at.
var errStrayWrites = errors.New("set spec.discardStrayWrites to release the group without them, annex serves it until then")

// errNewUIDs refuses a release.
var errNewUIDs = errors.New("set spec.allowNewUIDs to release them with new UIDs, or delete them, annex serves the group until then")

// refuseNewUIDs looks, before anything is written, for objects whose copy cannot keep their UID.
func (r *Reconciler) refuseNewUIDs(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, s *releaseSession) error {
	if group.Spec.AllowNewUIDs {
		return nil
	}
	var refusals []string
	for _, c := range s.copies {
		var unborn []string
		err := eachMetadata(ctx, r.Connections.Annex, c.resource.storage, func(items []metav1.PartialObjectMetadata) {
			for i := range items {
				key := keyOf(&items[i])
				if found, ok := c.copyOf(key); !ok || !c.usable(found, items[i].UID, items[i].DeletionTimestamp != nil) {
					unborn = append(unborn, key)
				}
			}
		})
		if err != nil {
			return err
		}
		refusals = appendUnborn(refusals, c.resource.plural, unborn)
	}
	return newUIDRefusal(refusals)
}

func appendUnborn(refusals []string, plural string, unborn []string) []string {
	if len(unborn) == 0 {
		return refusals
	}
	return append(refusals, fmt.Sprintf("%d %s (%s)", len(unborn), plural, firstNames(unborn)))
}

func newUIDRefusal(refusals []string) error {
	if len(refusals) == 0 {
		return nil
	}
	return fmt.Errorf("the cluster has no copy of %s: %w", strings.Join(refusals, ", "), errNewUIDs)
}

// releaseBack gives writers way again and takes the release up later. The phase is
// stored together with the mode: what was compared holds no more once writes pass.
func (r *Reconciler) releaseBack(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, cause error) (outcome, error) {
	group.Status.Phase = kubeannexv1alpha1.PhaseReleasing
	if err := r.serve(ctx, group, kubeannexv1alpha1.ServingOpen); err != nil {
		return outcome{}, errors.Join(cause, err)
	}
	if err := r.holds().Lower(ctx, group.Name); err != nil {
		return outcome{}, errors.Join(cause, err)
	}
	if s := r.releases.get(group); s != nil {
		s.fenced = time.Time{}
		s.setbacks++
		s.notBefore = r.Clock.Now().Add(min(time.Duration(s.setbacks)*releaseRetry, maxReleaseRetry))
	}
	if cause != nil {
		r.Recorder.Eventf(group, nil, "Warning", "ReleaseSetback", "Release", "Writes go on in annex and the release is tried again: %s", oneLine(cause))
	}
	return next(kubeannexv1alpha1.PhaseReleasing), nil
}
