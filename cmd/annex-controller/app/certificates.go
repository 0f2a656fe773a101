// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubeannex/annex/cmd/annex-controller/app/options"
	"github.com/kubeannex/annex/pkg/controller/certificates"
	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// newReplica returns what follows issued certificates, nil when others issue them.
func newReplica(opts options.CompletedOptions, connections *cluster.Connections, authorities *options.Authorities) *certificates.Replica {
	if !opts.Certificates.Issue {
		return nil
	}
	return &certificates.Replica{Client: connections.Host.Kube, Namespace: opts.Namespace, Bundle: authorities.Annex}
}

// addCertificates makes every process follow whom to trust, and the leader keep
// certificates and caBundles.
func addCertificates(mgr manager.Manager, opts options.CompletedOptions, connections *cluster.Connections, authorities *options.Authorities, replica *certificates.Replica) error {
	if err := mgr.Add(authorities); err != nil {
		return fmt.Errorf("adding the files of authorities: %w", err)
	}
	if replica != nil {
		if err := mgr.Add(replica); err != nil {
			return fmt.Errorf("adding the certificate of the webhooks: %w", err)
		}
	}
	reconciler, err := newCertificates(mgr, opts, connections, authorities)
	if err != nil {
		return err
	}
	keeper, err := controller.New("certificates", mgr, controllerOptions(reconciler))
	if err != nil {
		return fmt.Errorf("making the controller of certificates: %w", err)
	}
	// There is one request: every part follows from the authority.
	everything := []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "certificates"}}}
	changed := make(chan event.TypedGenericEvent[string], 1)
	changed <- event.TypedGenericEvent[string]{}
	authorities.OnChange(func() {
		select {
		case changed <- event.TypedGenericEvent[string]{}:
		default:
		}
	})
	sources := []source.Source{source.Channel(changed, handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, string) []reconcile.Request { return everything }))}
	for _, object := range []*metav1.PartialObjectMetadata{
		metadataOf(apiregistrationv1.SchemeGroupVersion.WithKind("APIService")),
		metadataOf(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")),
	} {
		sources = append(sources, source.Kind(mgr.GetCache(), object,
			handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *metav1.PartialObjectMetadata) []reconcile.Request { return everything })))
	}
	informers := keptInformers(reconciler, connections)
	for _, informer := range informers {
		sources = append(sources, &source.Informer{Informer: informer, Handler: handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return everything })})
	}
	for _, watched := range sources {
		if err := keeper.Watch(watched); err != nil {
			return fmt.Errorf("watching certificates: %w", err)
		}
	}
	return addInformers(mgr, informers)
}

// newCertificates makes the reconciler from flags and connections.
func newCertificates(mgr manager.Manager, opts options.CompletedOptions, connections *cluster.Connections, authorities *options.Authorities) (*certificates.Reconciler, error) {
	store := certificates.Store{Client: connections.Host.Kube, Namespace: opts.Namespace, Recorder: mgr.GetEventRecorder(name), Clock: clock.RealClock{}}
	bundles := &certificates.CABundles{Host: connections.Host, AnnexService: connections.AnnexService, Webhook: connections.Webhook}
	reconciler := &certificates.Reconciler{Store: store, CABundles: bundles, AnnexCA: connections.AnnexCA, WebhookCA: connections.WebhookCA}
	if !opts.Certificates.Issue {
		return reconciler, nil
	}
	store.Metrics = certificates.NewMetrics()
	if err := store.Metrics.Register(ctrlmetrics.Registry.Register); err != nil {
		return nil, err
	}
	leaves, err := opts.Leaves()
	if err != nil {
		return nil, err
	}
	webhooks, err := opts.WebhookEndpoints(connections, authorities)
	if err != nil {
		return nil, err
	}
	witness := &certificates.Witness{
		CABundles: bundles, Hosts: connections.HostEndpoints, Sampled: connections.HostSampling > 0,
		Servers: []cluster.Endpoints{connections.AnnexEndpoints, webhooks},
	}
	reconciler.Store = store
	reconciler.Issuer = &certificates.Issuer{
		Store: store, Settings: opts.Certificates.Settings(), Leaves: leaves,
		Publish: func(ctx context.Context, bundle []byte) error { return bundles.Apply(ctx, bundle, bundle) },
		Told:    witness.Told, Presented: witness.Presented,
	}
	if len(opts.Certificates.EtcdMembers) > 0 {
		reconciler.Etcd = &certificates.EtcdIssuer{
			Store: store, Validity: opts.Certificates.Validity,
			Members: opts.Certificates.EtcdMembers, ClusterDomain: opts.Certificates.ClusterDomain,
		}
	}
	return reconciler, nil
}

// keptInformers watch what the leader keeps in place, each by its name.
func keptInformers(reconciler *certificates.Reconciler, connections *cluster.Connections) []cache.SharedIndexInformer {
	if reconciler.Issuer == nil {
		return nil
	}
	informers := []cache.SharedIndexInformer{certificates.ConfigMapInformer(connections.Host.Kube, connections.Namespace, certificates.BundleConfigMap)}
	for _, name := range reconciler.Secrets() {
		informers = append(informers, certificates.SecretInformer(connections.Host.Kube, connections.Namespace, name))
	}
	return informers
}

// addInformers runs informers while this process leads.
func addInformers(mgr manager.Manager, informers []cache.SharedIndexInformer) error {
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		var wait sync.WaitGroup
		for _, informer := range informers {
			wait.Go(func() { informer.RunWithContext(ctx) })
		}
		wait.Wait()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("adding the informers of certificates: %w", err)
	}
	return nil
}
