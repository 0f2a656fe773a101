// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kubeannex/annex/cmd/annex-controller/app/options"
	"github.com/kubeannex/annex/pkg/controller/certificates"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/pkg/generated/informers/externalversions"
)

// resync is how often every AnnexedGroup is looked at without a reason.
const resync = 30 * time.Second

// newManager returns the manager, and what tells whether this process leads; that
// is nil without an election.
func newManager(config *rest.Config, opts options.CompletedOptions, replica *certificates.Replica) (manager.Manager, func(context.Context) (bool, error), error) {
	var lock resourcelock.Interface
	var leading func(context.Context) (bool, error)
	if opts.LeaderElect {
		election, err := newElection(config, opts.Namespace)
		if err != nil {
			return nil, nil, err
		}
		if lock, err = election.lock(); err != nil {
			return nil, nil, err
		}
		leading = election.leads
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme:                        newScheme(),
		LeaderElection:                opts.LeaderElect,
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        opts.HealthProbeBindAddress,
		LivenessEndpointName:          "/livez", // as annex-apiserver has it
		Metrics:                       metricsOptions(opts.MetricsBindAddress),

		LeaderElectionResourceLockInterface: lock,
		WebhookServer:                       webhookServer(opts, replica),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("setting the controller up: %w", err)
	}
	return mgr, leading, nil
}

// webhookServer presents the certificate of a directory, or the one that the
// controller issues.
func webhookServer(opts options.CompletedOptions, replica *certificates.Replica) webhook.Server {
	config := webhook.Options{Host: opts.Webhook.BindAddress, Port: opts.Webhook.Port, CertDir: opts.Webhook.CertDir}
	if replica != nil {
		config.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = replica.GetCertificate }}
	}
	return webhook.NewServer(config)
}

// addController watches AnnexedGroups at annex itself, so that they are seen also
// while the host does not reach annex, and definitions and APIServices at the
// host: one that somebody deletes comes back as kube-apiserver's own, and clients
// read the host's old copies until it is annex's again. Annex is not asked before
// trusted is closed: it could not be verified, and every failure makes an informer
// wait for longer.
func addController(mgr manager.Manager, reconciler reconcile.Reconciler, groups annexclient.Interface, trusted <-chan struct{}) error {
	annexedGroups, err := controller.New("annexedgroup", mgr, controllerOptions(reconciler))
	if err != nil {
		return fmt.Errorf("making the controller: %w", err)
	}
	factory := externalversions.NewSharedInformerFactory(groups, resync)
	informer := factory.Kubeannex().V1alpha1().AnnexedGroups().Informer()
	if err := annexedGroups.Watch(&source.Informer{
		Informer:   informer,
		Handler:    &handler.EnqueueRequestForObject{},
		Predicates: []predicate.Predicate{worthALook()},
	}); err != nil {
		return fmt.Errorf("watching AnnexedGroups: %w", err)
	}
	for _, kind := range []schema.GroupVersionKind{
		apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), apiregistrationv1.SchemeGroupVersion.WithKind("APIService"),
	} {
		if err := annexedGroups.Watch(source.Kind(mgr.GetCache(), metadataOf(kind), handler.TypedEnqueueRequestsFromMapFunc(groupOf(informer.GetStore())))); err != nil {
			return fmt.Errorf("watching objects of kind %s: %w", kind.Kind, err)
		}
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-trusted:
		}
		factory.StartWithContext(ctx)
		<-ctx.Done()
		factory.Shutdown()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("adding the informer of AnnexedGroups: %w", err)
	}
	return nil
}

// worthALook leaves out changes of the status: the controller makes them itself.
func worthALook() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetGeneration() != after.GetGeneration() ||
			before.GetUID() != after.GetUID() ||
			before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
			// The resync shows an object against itself.
			before.GetResourceVersion() == after.GetResourceVersion()
	}}
}

// metadataOf is what is watched of a kind: the names tell enough.
func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// groupOf maps a definition, whose name is plural.group, or an APIService, whose
// name is version.group, to the AnnexedGroup of its group, if there is one.
func groupOf(known cache.Store) handler.TypedMapFunc[*metav1.PartialObjectMetadata, reconcile.Request] {
	return func(_ context.Context, object *metav1.PartialObjectMetadata) []reconcile.Request {
		_, group, _ := strings.Cut(object.Name, ".")
		if _, exists, err := known.GetByKey(group); err != nil || !exists {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: group}}}
	}
}
