// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/definitionguard"
)

// cutOver routes the group to annex. Until the first APIService is changed the
// way back is open; from then on it goes forward only, whatever dies.
func (r *Reconciler) cutOver(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup) (outcome, error) {
	watch := r.newStopwatch()
	resources, err := r.hostResources(ctx, group.Name)
	if err != nil {
		return outcome{}, err
	}
	begun, err := r.anyTaken(ctx, resources)
	if err != nil {
		return outcome{}, err
	}
	if !begun {
		if err := r.mayCutOver(ctx, group, resources); err != nil {
			return r.notCutOver(ctx, group, err)
		}
	} else if _, err := r.fences().Raise(ctx, group.Name, r.Clock.Now()); err != nil {
		// Until every kube-apiserver routes to annex nobody may write to the host.
		return outcome{}, err
	}
	if err := r.prepareCutOver(ctx, group, begun); err != nil {
		if begun {
			return outcome{}, err
		}
		return r.notCutOver(ctx, group, err)
	}
	watch.lap(ctx, "Every replica of annex answers reads")
	revision, err := r.annexRevision(ctx, group.Name)
	if err == nil {
		err = r.takeOver(ctx, group, resources, begun)
	}
	if err != nil {
		if begun, listErr := r.anyTaken(ctx, resources); listErr == nil && !begun {
			return r.notCutOver(ctx, group, err)
		}
		return outcome{}, err
	}
	watch.lap(ctx, "All APIServices name annex")
	if err := r.confirmRoute(ctx, resources, revision); err != nil {
		return outcome{}, err
	}
	watch.lap(ctx, "Every kube-apiserver routes to annex")
	return next(kubeannexv1alpha1.PhaseUnfencing), nil
}

// notCutOver decides what a failure before the first APIService means: another
// try as long as the fence may hold, the way back after that.
func (r *Reconciler) notCutOver(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, cause error) (outcome, error) {
	s := r.sessions.get(group)
	if s != nil && s.fence != nil {
		return r.fenceFailed(ctx, group, s, cause)
	}
	present, err := r.fences().Get(ctx, group.Name)
	if err != nil {
		return outcome{}, err
	}
	if present != nil && r.Clock.Since(present.Since) < maxFence {
		return outcome{}, cause
	}
	return r.setback(ctx, group, cause)
}

// mayCutOver checks that what was verified still holds.
func (r *Reconciler) mayCutOver(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, resources []resource) error {
	s := r.sessions.get(group)
	if s != nil && s.fence != nil {
		if err := r.fenceStands(ctx, group, s); err != nil {
			return err
		}
		if changes := changedSince(s, resources); changes != "" {
			return fmt.Errorf("%w: definitions changed: %s", errFenceTooOld, changes)
		}
		return nil
	}
	// This process did not see the verification. Its result is in the status, and it holds as long as the fence does.
	present, err := r.fences().Get(ctx, group.Name)
	if err != nil {
		return err
	}
	if present == nil || r.Clock.Since(present.Since) > maxFence {
		return errFenceTooOld
	}
	return nil
}

// prepareCutOver makes every replica of annex answer reads of the group.
func (r *Reconciler) prepareCutOver(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, begun bool) error {
	if s := r.sessions.get(group); !begun && s != nil && s.fence != nil {
		limited, cancel := r.fenceContext(ctx, s)
		defer cancel()
		ctx = limited
	}
	if err := r.serve(ctx, group, kubeannexv1alpha1.ServingReadOnly); err != nil {
		return err
	}
	if err := r.awaitReplicas(ctx, group.Name, true); err != nil || begun {
		return err
	}
	// From the first APIService on all of them are waited for.
	if err := r.everybodyAnswers(ctx, group.Name); err != nil {
		return fmt.Errorf("%w: %w", errFenceTooOld, err)
	}
	return nil
}

// anyTaken says that an APIService of the group names annex already.
func (r *Reconciler) anyTaken(ctx context.Context, resources []resource) (bool, error) {
	for _, gvr := range servedVersions(resources) {
		service, err := r.apiService(ctx, gvr)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		if r.registrar().Owns(service) {
			return true, nil
		}
	}
	return false, nil
}

func (r *Reconciler) apiService(ctx context.Context, gvr schema.GroupVersionResource) (*apiregistrationv1.APIService, error) {
	name := gvr.Version + "." + gvr.Group
	service, err := r.Connections.Host.APIServices.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading APIService %s: %w", name, err)
	}
	return service, nil
}

// takenOver returns an APIService that routes to annex and that kube-apiserver
// leaves alone. Priorities stay as they are, so discovery does not change.
func (r *Reconciler) takenOver(service *apiregistrationv1.APIService) *apiregistrationv1.APIService {
	service = service.DeepCopy()
	service.Labels = maps.Clone(service.Labels)
	delete(service.Labels, definitionguard.AutomanagedLabel)
	service.Spec.Service = r.Connections.AnnexService.DeepCopy()
	service.Spec.CABundle = r.Connections.AnnexCA()
	service.Spec.InsecureSkipTLSVerify = false
	return service
}

// takeOver changes the APIService of every served version.
func (r *Reconciler) takeOver(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, resources []resource, begun bool) error {
	r.sessions.flip.Lock()
	defer r.sessions.flip.Unlock()
	// They are read before the fence is looked at and changed as they were read: who changed one since decides.
	var services []*apiregistrationv1.APIService
	for _, gvr := range servedVersions(resources) {
		service, err := r.apiService(ctx, gvr)
		if err != nil {
			return err
		}
		services = append(services, service)
	}
	if !begun {
		// The age of the fence is looked at again while nobody else can lift it, and nobody shall after that.
		if err := r.mayCutOver(ctx, group, resources); err != nil {
			return err
		}
		r.sessions.lowered(group.Name)
	}
	if err := r.mustLead(ctx); err != nil {
		return err
	}
	for _, service := range services {
		if err := r.takeOverVersion(ctx, service); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) takeOverVersion(ctx context.Context, service *apiregistrationv1.APIService) error {
	switch {
	case r.registrar().Owns(service) && service.Labels[definitionguard.AutomanagedLabel] == "":
		return nil
	case service.Spec.Service != nil && !r.registrar().Owns(service):
		return fmt.Errorf("APIService %s names the service %s/%s: point it to annex or delete it", service.Name, service.Spec.Service.Namespace, service.Spec.Service.Name)
	}
	if _, err := r.Connections.Host.APIServices.ApiregistrationV1().APIServices().Update(ctx, r.takenOver(service), metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("changing APIService %s: %w", service.Name, err)
	}
	return nil
}

// confirmRoute waits until every kube-apiserver answers every version of the
// group with a revision of annex, which is above all revisions of the host.
func (r *Reconciler) confirmRoute(ctx context.Context, resources []resource, revision int64) error {
	return r.await(ctx, confirmTimeout, func(ctx context.Context) error {
		return r.onEveryHost(ctx, func(ctx context.Context, server hostEndpoint) error {
			for _, gvr := range servedVersions(resources) {
				got, err := revisionAt(ctx, server, gvr)
				if err != nil {
					return fmt.Errorf("asking for %s at version %s: %w", gvr.Resource, gvr.Version, err)
				}
				if got < revision {
					return fmt.Errorf("it does not route %s to annex yet", gvr.GroupVersion())
				}
			}
			return nil
		})
	})
}
