// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kubeannex/annex/cmd/annex-controller/app/options"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup"
	"github.com/kubeannex/annex/pkg/controller/certificates"
	"github.com/kubeannex/annex/pkg/controller/definitionguard"
	"github.com/kubeannex/annex/pkg/controller/fence"
	"github.com/kubeannex/annex/pkg/controller/ownerhold"
	annexscheme "github.com/kubeannex/annex/pkg/generated/clientset/versioned/scheme"
)

const (
	name = "annex-controller"
	// parallelGroups is how many groups can be on their way at the same time.
	parallelGroups = 4
	// A step that fails is tried again after the first, later after the second.
	shortestRetry = 100 * time.Millisecond
	longestRetry  = 3 * time.Second
	// hostRetry is the pause between two questions to a host that does not answer at the start.
	hostRetry = 2 * time.Second
)

// Run runs the controller until ctx is done. It waits for the host and for
// annex when they do not answer.
func Run(ctx context.Context, opts options.CompletedOptions) error {
	logf.SetLogger(klog.Background())
	connections, authorities, err := opts.Connections()
	if err != nil {
		return err
	}
	if connections.Username, err = whoAmI(ctx, connections.Host.Kube); err != nil {
		return err
	}
	replica := newReplica(opts, connections, authorities)
	mgr, leading, err := newManager(connections.Host.Config, opts, replica)
	if err != nil {
		return err
	}
	if err := addCertificates(mgr, opts, connections, authorities, replica); err != nil {
		return err
	}
	dependents, err := opts.DependentKinds()
	if err != nil {
		return err
	}
	moves := annexedgroup.NewMetrics()
	if err := moves.Register(ctrlmetrics.Registry.Register); err != nil {
		return err
	}
	reconciler := &annexedgroup.Reconciler{
		Connections: *connections,
		Metrics:     moves,
		Recorder:    mgr.GetEventRecorder(name),
		Clock:       clock.RealClock{},
		Leading:     leading,

		HostRequestTimeout: opts.HostRequestTimeout,
		Dependents:         dependents,
	}
	registerWebhooks(mgr.GetWebhookServer(), reconciler)
	if err := addController(mgr, reconciler, connections.Annex.Groups, authorities.Annex.Known()); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(reconciler.KeepFences)); err != nil {
		return fmt.Errorf("adding the keeper of fences: %w", err)
	}
	if err := addChecks(mgr, replica); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controller: %w", err)
	}
	return nil
}

func registerWebhooks(server webhook.Server, reconciler *annexedgroup.Reconciler) {
	connections := &reconciler.Connections
	server.Register(fence.Path, &fence.Handler{Username: connections.Username})
	server.Register(ownerhold.Path, ownerhold.NewWebhook())
	server.Register(definitionguard.Path, definitionguard.NewWebhook(&definitionguard.Handler{
		Groups: connections.Annex.Groups, Username: connections.Username, Routed: reconciler.AwaitRoute,
		Registrar: &definitionguard.Registrar{
			Client: connections.Host.APIServices, Service: connections.AnnexService, CA: connections.AnnexCA, Clock: clock.RealClock{},
		},
	}))
}

// whoAmI asks the host for the controller's own name.
func whoAmI(ctx context.Context, client kubernetes.Interface) (string, error) {
	var username string
	err := wait.PollUntilContextCancel(ctx, hostRetry, true, func(ctx context.Context) (bool, error) {
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			klog.FromContext(ctx).Info("Waiting for the cluster to say who annex-controller is", "answer", err)
			return false, nil
		}
		username = review.Status.UserInfo.Username
		return true, nil
	})
	if err != nil {
		return "", fmt.Errorf("asking the cluster who annex-controller is: %w", err)
	}
	return username, nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(annexscheme.AddToScheme(scheme))
	return scheme
}

func addChecks(mgr manager.Manager, replica *certificates.Replica) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding a health check: %w", err)
	}
	checks := map[string]healthz.Checker{"webhooks": mgr.GetWebhookServer().StartedChecker()}
	if replica != nil {
		checks["certificates"] = replica.Check
	}
	for name, check := range checks {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("adding a readiness check: %w", err)
		}
	}
	return nil
}

func controllerOptions(reconciler reconcile.Reconciler) controller.Options {
	return controller.Options{
		Reconciler:              reconciler,
		MaxConcurrentReconciles: parallelGroups,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](shortestRetry, longestRetry),
	}
}

func metricsOptions(address string) metricsserver.Options {
	return metricsserver.Options{BindAddress: address}
}
