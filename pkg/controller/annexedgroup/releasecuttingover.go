// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
	"github.com/kubeannex/annex/pkg/controller/definitionguard"
)

// releasedPause is how long annex answers with 410 at least before requests go to
// the cluster. Its revisions are lower, and a watch from a higher one would be
// accepted there and stay silent: so a client that is between two watches must
// ask annex once more. Informers do so at once when a watch ends; a client that
// stays away for longer than this must list again by itself.
const releasedPause = 3 * time.Second

// absentPause is the same when a kube-apiserver did not answer meanwhile. An
// informer of client-go tries to connect again with pauses that grow to this
// (client-go/tools/cache/reflector.go).
const absentPause = 30 * time.Second

// releaseCutOver routes the group back to the cluster. From the moment that annex
// says 410 it goes forward only, whatever dies. The order is:
//
//	new UIDs stored, garbage collector kept off    annex answers reads
//	annex ends watches with 410, answers nothing    (ServingReleased)
//	definitions with a conversion as they were      it must work before anybody reads
//	APIServices back, every kube-apiserver serves   the cluster answers
//	all other definitions as they were              writers need not wait for it: it can take seconds for each
//	ownerReferences repaired, garbage collector on  not before the new UIDs can be seen
//	definitions may be deleted                      nothing of the release is left in the cluster
func (r *Reconciler) releaseCutOver(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	resources, err := r.hostResources(ctx, group.Name)
	if err != nil {
		return outcome{}, err
	}
	pause := releasedPause
	switch group.Status.Serving {
	case kubeannexv1alpha1.ServingReleased:
		// An earlier run has ended, and nobody has looked at the kube-apiservers since.
		pause = absentPause
	case kubeannexv1alpha1.ServingReadOnly:
		if err := r.prepareOwners(ctx, group, resources); err != nil {
			return r.releaseBack(ctx, group, err)
		}
		// From here on all of them are waited for.
		if err := r.everybodyAnswers(ctx, group.Name); err != nil {
			return r.releaseBack(ctx, group, err)
		}
	default:
		return r.releaseBack(ctx, group, nil)
	}
	if err := r.serve(ctx, group, kubeannexv1alpha1.ServingReleased); err != nil {
		return outcome{}, err
	}
	end := r.Clock.Now().Add(pause)
	away, err := r.returnConversions(ctx, group.Name)
	if err != nil {
		return outcome{}, err
	}
	if away {
		end = r.Clock.Now().Add(absentPause)
	}
	if err := r.returnVersions(ctx, group.Name, resources, end); err != nil {
		return outcome{}, err
	}
	if err := r.confirmReturned(ctx, group.Name, resources); err != nil {
		return outcome{}, err
	}
	setCondition(group, kubeannexv1alpha1.ConditionAnnexed, metav1.ConditionFalse, "Released", "The cluster serves the group again")
	if s := r.releases.get(group); s != nil && !s.fenced.IsZero() {
		duration := r.Clock.Since(s.fenced).Round(time.Millisecond)
		s.fenced = time.Time{}
		group.Status.FenceDuration = &metav1.Duration{Duration: duration}
		r.Recorder.Eventf(group, nil, "Normal", "Released", "Release", "The cluster serves the group again, writes waited %s", duration)
	}
	if err := r.untouchDefinitions(ctx, group.Name); err != nil {
		return outcome{}, err
	}
	if err := r.restoreOwners(ctx, group.Name, resources); err != nil {
		return outcome{}, err
	}
	if err := r.changeDefinitions(ctx, group.Name, unheld); err != nil {
		return outcome{}, err
	}
	return next(kubeannexv1alpha1.PhaseReleaseUnfencing), nil
}

// returnConversions gives definitions with a conversion webhook back as they were,
// and waits until every kube-apiserver converts with it. It returns whether one
// was away meanwhile.
func (r *Reconciler) returnConversions(ctx context.Context, group string) (away bool, err error) {
	definitions, err := listDefinitions(ctx, r.Connections.Host, group)
	if err != nil {
		return false, err
	}
	var converted []resource
	for i := range definitions {
		// An earlier run may have changed the definition and died before every server had it.
		conversion := definitions[i].Spec.Conversion
		if definitions[i].Annotations[conversionAnnotation] != "" || conversion != nil && conversion.Strategy != apiextensionsv1.NoneConverter {
			converted = append(converted, resourceOf(&definitions[i]))
		}
	}
	for i := range converted {
		if err := r.changeDefinition(ctx, converted[i].definition, untouched); err != nil {
			return false, err
		}
	}
	return r.awaitNoPrivate(ctx, converted)
}

// prepareOwners makes sure that no dependent of an object with a new UID is lost.
func (r *Reconciler) prepareOwners(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, resources []resource) error {
	owners, dependents := r.sessionOwners(group)
	if owners == nil {
		var err error
		if owners, err = r.compareUIDs(ctx, resources); err != nil {
			return err
		}
	}
	if err := r.storeOwners(ctx, group.Name, owners); err != nil || len(owners) == 0 {
		return err
	}
	if dependents == nil {
		var err error
		if dependents, err = r.repairable(ctx, group.Name, owners); err != nil {
			return err
		}
	}
	return r.holdCollector(ctx, group.Name, dependents)
}

func (r *Reconciler) sessionOwners(group *kubeannexv1alpha1.AnnexedGroup) (hostcopy.Owners, []schema.GroupResource) {
	s := r.releases.get(group)
	if s == nil {
		return nil, nil
	}
	return s.owners, s.dependents
}

// restoreOwners repairs dependents and lets the garbage collector work again.
func (r *Reconciler) restoreOwners(ctx context.Context, group string, resources []resource) error {
	owners, err := r.loadOwners(ctx, group)
	if err != nil {
		return err
	}
	if len(owners) > 0 {
		if err := r.repairDependents(ctx, group, resources, owners); err != nil {
			return err
		}
	}
	if err := r.holds().Lower(ctx, group); err != nil {
		return err
	}
	return r.deleteOwners(ctx, group)
}

// returnVersions gives the APIServices back, not before clients of every
// kube-apiserver had time, until end at least, to be told by annex to list again.
func (r *Reconciler) returnVersions(ctx context.Context, group string, resources []resource, end time.Time) error {
	registrar := r.registrar()
	owned, err := registrar.Owned(ctx, group)
	if err != nil || len(owned) == 0 {
		return err
	}
	var routed []schema.GroupVersionResource
	for _, gvr := range servedVersions(resources) {
		if definitionguard.Routes(owned, gvr.Version) {
			routed = append(routed, gvr)
		}
	}
	if err := r.tellEverybody(ctx, routed, end); err != nil {
		return err
	}
	if err := r.mustLead(ctx); err != nil {
		return err
	}
	for i := range owned {
		version := schema.GroupVersion{Group: group, Version: owned[i].Spec.Version}
		if err := registrar.Return(ctx, version); err != nil {
			return err
		}
	}
	return nil
}

// tellEverybody returns when every kube-apiserver has passed on annex's refusals
// until end, and for absentPause after the last time that one did not: its clients
// may come back as late as that.
func (r *Reconciler) tellEverybody(ctx context.Context, routed []schema.GroupVersionResource, end time.Time) error {
	giveUp := r.Clock.Now().Add(absentPause + confirmTimeout)
	for {
		err := r.onEveryHost(ctx, func(ctx context.Context, server hostEndpoint) error {
			for _, gvr := range routed {
				if _, err := promptRevision(ctx, server, gvr); !apierrors.IsTooManyRequests(err) {
					return fmt.Errorf("asking for %s at version %s: it does not pass on that annex has released it: %w",
						gvr.Resource, gvr.Version, cmp.Or(err, errors.New("it answers")))
				}
			}
			return nil
		})
		now := r.Clock.Now()
		switch {
		case err != nil && now.After(giveUp):
			return err
		case err != nil:
			end = now.Add(absentPause)
		case !now.Before(end):
			return nil
		}
		r.pause(ctx, min(max(end.Sub(now), shortestPause), longestPause))
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// confirmReturned waits until every kube-apiserver answers every version itself:
// with a revision below annex's, which is above all revisions of the host.
func (r *Reconciler) confirmReturned(ctx context.Context, group string, resources []resource) error {
	revision, err := r.annexRevision(ctx, group)
	if err != nil {
		return err
	}
	return r.await(ctx, confirmTimeout, func(ctx context.Context) error {
		return r.onEveryHost(ctx, func(ctx context.Context, server hostEndpoint) error {
			for _, gvr := range servedVersions(resources) {
				got, err := promptRevision(ctx, server, gvr)
				if apierrors.IsTooManyRequests(err) || err == nil && got >= revision {
					return fmt.Errorf("it still routes %s to annex", gvr.GroupVersion())
				}
				if err != nil {
					return fmt.Errorf("asking for %s at version %s: %w", gvr.Resource, gvr.Version, err)
				}
			}
			return nil
		})
	})
}

// promptRevision is revisionAt without waiting when the server asks to.
func promptRevision(ctx context.Context, server hostEndpoint, gvr schema.GroupVersionResource) (int64, error) {
	content, err := server.Kube.Discovery().RESTClient().Get().AbsPath("/apis", gvr.Group, gvr.Version, gvr.Resource).
		Param("limit", "1").SetHeader("Accept", "application/json").MaxRetries(0).DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(content, &list); err != nil {
		return 0, fmt.Errorf("decoding a list: %w", err)
	}
	return strconv.ParseInt(list.ResourceVersion, 10, 64)
}
