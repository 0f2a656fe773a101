// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package definitionguard

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
)

const (
	// AutomanagedLabel marks the APIServices that kube-apiserver keeps as it wants
	// them (kube-aggregator/pkg/controllers/autoregister).
	AutomanagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	// AutomanagedAlways is its value for those that it makes for CustomResourceDefinitions.
	AutomanagedAlways = "true"

	// wantedAnnotation is when the guard last saw a definition that serves the version.
	wantedAnnotation = "kubeannex.io/wanted-at"
	// wantedFor is how long an APIService is kept that no definition needs yet: the
	// guard registers it before kube-apiserver stores the definition, and a request
	// to kube-apiserver lasts a minute at most.
	wantedFor = 2 * time.Minute

	// What kube-apiserver gives the APIServices of custom resources
	// (kubernetes/pkg/controlplane/controller/crdregistration).
	groupPriorityMinimum = 1000
	versionPriority      = 100
)

// Registrar points APIServices at annex and back.
type Registrar struct {
	// Client is of the host.
	Client aggregatorclient.Interface
	// Service is annex, CA returns the authorities (PEM) of its certificate, nil while
	// they are not known.
	Service apiregistrationv1.ServiceReference
	CA      func() []byte
	// Clock is the real one outside tests.
	Clock clock.PassiveClock
}

// Name is the name of the APIService of a version.
func Name(version schema.GroupVersion) string { return version.Version + "." + version.Group }

// ForeignError is returned when an APIService belongs to somebody else.
type ForeignError struct {
	// APIService is its name, Service the service that it names.
	APIService, Service string
}

// Error tells what to do.
func (f *ForeignError) Error() string {
	return fmt.Sprintf("APIService %s belongs to service %s: delete it, or choose another version name", f.APIService, f.Service)
}

// Owns says whether an APIService names annex.
func (r *Registrar) Owns(service *apiregistrationv1.APIService) bool {
	return service.Spec.Service != nil &&
		service.Spec.Service.Namespace == r.Service.Namespace && service.Spec.Service.Name == r.Service.Name
}

// Check returns a ForeignError when the version cannot be taken over. It writes nothing.
func (r *Registrar) Check(ctx context.Context, version schema.GroupVersion) error {
	service, err := r.Client.ApiregistrationV1().APIServices().Get(ctx, Name(version), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading APIService %s: %w", Name(version), err)
	}
	return r.foreign(service)
}

func (r *Registrar) foreign(service *apiregistrationv1.APIService) error {
	if service.Spec.Service == nil || r.Owns(service) {
		return nil
	}
	return &ForeignError{APIService: service.Name, Service: service.Spec.Service.Namespace + "/" + service.Spec.Service.Name}
}

// Claim makes requests of a version go to annex: it creates the APIService or
// takes over the one that kube-apiserver made. One that belongs to somebody
// else gives a ForeignError. A claim outlives the lack of a definition for two minutes.
func (r *Registrar) Claim(ctx context.Context, version schema.GroupVersion) error {
	return r.change(ctx, version, func(service *apiregistrationv1.APIService) bool {
		if service.Annotations == nil {
			service.Annotations = map[string]string{}
		}
		service.Annotations[wantedAnnotation] = r.Clock.Now().UTC().Format(time.RFC3339)
		return true
	})
}

// Keep is Claim without the respite: it writes only what differs. Refresh, when
// not empty, is noted on the APIService; a new value makes every kube-apiserver
// read annex's discovery again at once instead of within a minute.
func (r *Registrar) Keep(ctx context.Context, version schema.GroupVersion, refresh string) error {
	return r.change(ctx, version, func(service *apiregistrationv1.APIService) bool {
		if refresh == "" || service.Annotations[refreshAnnotation] == refresh {
			return false
		}
		if service.Annotations == nil {
			service.Annotations = map[string]string{}
		}
		service.Annotations[refreshAnnotation] = refresh
		return true
	})
}

// refreshAnnotation is a digest of the definitions that annex serves.
const refreshAnnotation = "kubeannex.io/definitions"

func (r *Registrar) change(ctx context.Context, version schema.GroupVersion, note func(*apiregistrationv1.APIService) bool) error {
	authorities := r.CA()
	if len(authorities) == 0 {
		return fmt.Errorf("taking over APIService %s: the authority of annex is not known yet: look at the readiness of annex-controller", Name(version))
	}
	services := r.Client.ApiregistrationV1().APIServices()
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultBackoff, again, func() error {
		service, err := services.Get(ctx, Name(version), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			service = &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: Name(version)}}
			r.direct(service, version, authorities)
			note(service)
			_, err = services.Create(ctx, service, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		if err := r.foreign(service); err != nil {
			return err
		}
		changed := r.direct(service, version, authorities)
		if note(service) || changed {
			_, err = services.Update(ctx, service, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("taking over APIService %s: %w", Name(version), err)
	}
	return nil
}

// direct sets what makes an APIService annex's and says whether anything changed.
func (r *Registrar) direct(service *apiregistrationv1.APIService, version schema.GroupVersion, authorities []byte) bool {
	_, managed := service.Labels[AutomanagedLabel]
	ported := service.Spec.Service != nil && portOf(service.Spec.Service) == portOf(&r.Service)
	if !managed && r.Owns(service) && ported && bytes.Equal(service.Spec.CABundle, authorities) && !service.Spec.InsecureSkipTLSVerify {
		return false
	}
	delete(service.Labels, AutomanagedLabel)
	service.Spec = apiregistrationv1.APIServiceSpec{
		Group: version.Group, Version: version.Version,
		Service: r.Service.DeepCopy(), CABundle: authorities,
		GroupPriorityMinimum: groupPriorityMinimum, VersionPriority: versionPriority,
	}
	return true
}

func portOf(reference *apiregistrationv1.ServiceReference) int32 {
	if reference.Port == nil {
		return 443
	}
	return *reference.Port
}

// Return gives an APIService of ours back to kube-apiserver: it becomes as
// kube-apiserver makes it for a CustomResourceDefinition, in one update, so that
// there is no moment without it. Other APIServices are left alone.
func (r *Registrar) Return(ctx context.Context, version schema.GroupVersion) error {
	services := r.Client.ApiregistrationV1().APIServices()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		service, err := services.Get(ctx, Name(version), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if !r.Owns(service) {
			return nil
		}
		if service.Labels == nil {
			service.Labels = map[string]string{}
		}
		service.Labels[AutomanagedLabel] = AutomanagedAlways
		delete(service.Annotations, wantedAnnotation)
		delete(service.Annotations, refreshAnnotation)
		service.Spec = apiregistrationv1.APIServiceSpec{
			Group: version.Group, Version: version.Version,
			GroupPriorityMinimum: groupPriorityMinimum, VersionPriority: versionPriority,
		}
		_, err = services.Update(ctx, service, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("giving APIService %s back: %w", Name(version), err)
	}
	return nil
}

// Prune deletes the APIServices of a group that name annex and whose version no
// definition serves any more.
func (r *Registrar) Prune(ctx context.Context, group string, served []string) error {
	owned, err := r.Owned(ctx, group)
	if err != nil {
		return err
	}
	for i := range owned {
		if !r.prunable(&owned[i], served) {
			continue
		}
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &owned[i].ResourceVersion}}
		err := r.Client.ApiregistrationV1().APIServices().Delete(ctx, owned[i].Name, options)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting APIService %s: %w", owned[i].Name, err)
		}
	}
	return nil
}

func (r *Registrar) prunable(service *apiregistrationv1.APIService, served []string) bool {
	if slices.Contains(served, service.Spec.Version) {
		return false
	}
	wanted, err := time.Parse(time.RFC3339, service.Annotations[wantedAnnotation])
	return err != nil || r.Clock.Since(wanted) > wantedFor
}

// Owned returns the APIServices of a group that name annex.
func (r *Registrar) Owned(ctx context.Context, group string) ([]apiregistrationv1.APIService, error) {
	return r.owned(ctx, func(g string) bool { return g == group })
}

// Routes says whether one of some APIServices is that of a version.
func Routes(services []apiregistrationv1.APIService, version string) bool {
	return slices.ContainsFunc(services, func(s apiregistrationv1.APIService) bool { return s.Spec.Version == version })
}

// RoutesAny says whether an APIService names annex of a group that is not annex's own.
func (r *Registrar) RoutesAny(ctx context.Context) (bool, error) {
	owned, err := r.owned(ctx, func(g string) bool { return g != kubeannex.GroupName })
	return len(owned) > 0, err
}

func (r *Registrar) owned(ctx context.Context, wanted func(group string) bool) ([]apiregistrationv1.APIService, error) {
	list, err := r.Client.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing APIServices: %w", err)
	}
	var owned []apiregistrationv1.APIService
	for i := range list.Items {
		if wanted(list.Items[i].Spec.Group) && r.Owns(&list.Items[i]) {
			owned = append(owned, list.Items[i])
		}
	}
	return owned, nil
}
