// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"net"
	"net/url"

	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apiserver"
	"github.com/kubeannex/annex/pkg/standalone"
)

// Listen opens the port. It is done before anything else is started, so that
// an occupied port costs nothing.
func (o CompletedOptions) Listen() error {
	if o.SecureServing.Listener != nil {
		return nil
	}
	// Certificates are read later: a standalone server has to make them first.
	listening := *o.SecureServing.SecureServingOptions
	listening.ServerCert = genericoptions.GeneratableKeyCert{}
	listening.SNICertKeys = nil
	var info *genericapiserver.SecureServingInfo
	if err := listening.ApplyTo(&info); err != nil {
		return fmt.Errorf("%w: stop the process that holds the port or choose another with --bind-address and --secure-port", err)
	}
	o.SecureServing.Listener, o.SecureServing.BindPort = listening.Listener, listening.BindPort
	return nil
}

// Config turns the options into the configuration of a server. Listen must
// have been called, and etcd must be up.
func (o CompletedOptions) Config() (*apiserver.Config, error) {
	config := apiserver.NewConfig()
	generic := &config.GenericConfig.Config
	if err := o.ServerRun.ApplyTo(generic); err != nil {
		return nil, err
	}
	if err := o.applyStorage(config); err != nil {
		return nil, err
	}
	if err := o.EgressSelector.ApplyTo(generic); err != nil {
		return nil, fmt.Errorf("configuring egress: %w", err)
	}
	if err := o.Traces.ApplyTo(generic.EgressSelector, generic); err != nil {
		return nil, fmt.Errorf("configuring traces: %w", err)
	}
	if err := o.Audit.ApplyTo(generic); err != nil {
		return nil, fmt.Errorf("configuring audit: %w", err)
	}
	applyMode := o.applyDelegated
	if o.Standalone.Enabled {
		applyMode = o.applyStandalone
	}
	if err := applyMode(config); err != nil {
		return nil, err
	}
	config.ExtraConfig.ReplicaCount = o.ReplicaCount
	config.ExtraConfig.AuthResolverWrapper = webhook.NewDefaultAuthenticationInfoResolverWrapper(
		nil, generic.EgressSelector, generic.LoopbackClientConfig, generic.TracerProvider)
	return config, nil
}

// applyStandalone configures a server that has no cluster to ask.
func (o CompletedOptions) applyStandalone(config *apiserver.Config) error {
	credentials, err := standalone.Prepare(o.Standalone.RootDir, o.SecureServing.Listener.Addr().(*net.TCPAddr), o.AlternateDNS)
	if err != nil {
		return err
	}
	if o.SecureServing.ServerCert.CertKey.CertFile == "" {
		o.SecureServing.ServerCert.CertKey.CertFile = credentials.ServingCertFile
		o.SecureServing.ServerCert.CertKey.KeyFile = credentials.ServingKeyFile
	}
	generic := &config.GenericConfig.Config
	if err := o.applyServing(generic); err != nil {
		return err
	}
	if err := o.Authentication.applyStandalone(&generic.Authentication, generic.SecureServing, credentials); err != nil {
		return err
	}
	if err := o.Authorization.applyStandalone(&generic.Authorization); err != nil {
		return err
	}
	if err := o.Features.ApplyTo(generic, nil, nil); err != nil {
		return err
	}
	config.ExtraConfig.ServiceResolver = noServiceResolver{}
	return nil
}

// applyDelegated configures a server that asks a cluster who may do what.
func (o CompletedOptions) applyDelegated(config *apiserver.Config) error {
	recommended := config.GenericConfig
	if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", o.AlternateDNS, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return fmt.Errorf("generating a serving certificate: %w", err)
	}
	if err := o.applyServing(&recommended.Config); err != nil {
		return err
	}
	if err := o.CoreAPI.ApplyTo(recommended); err != nil {
		if errors.Is(err, rest.ErrNotInCluster) {
			return errors.New("no cluster found: give --kubeconfig, or --standalone to run without a cluster")
		}
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	if err := o.Authentication.Delegating.ApplyTo(&recommended.Authentication, recommended.SecureServing, recommended.OpenAPIConfig); err != nil {
		return fmt.Errorf("configuring delegated authentication: %w", err)
	}
	if err := o.Authorization.Delegating.ApplyTo(&recommended.Authorization); err != nil {
		return fmt.Errorf("configuring delegated authorization: %w", err)
	}
	kubeClient, err := kubernetes.NewForConfig(recommended.ClientConfig)
	if err != nil {
		return fmt.Errorf("creating a client of the cluster: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(recommended.ClientConfig)
	if err != nil {
		return fmt.Errorf("creating a client of the cluster: %w", err)
	}
	if err := o.Features.ApplyTo(&recommended.Config, kubeClient, recommended.SharedInformerFactory); err != nil {
		return err
	}
	if err := o.Admission.ApplyTo(&recommended.Config, recommended.SharedInformerFactory, kubeClient, dynamicClient,
		utilfeature.DefaultFeatureGate, recommended.EffectiveVersion); err != nil {
		return fmt.Errorf("configuring admission: %w", err)
	}
	config.ExtraConfig.ServiceResolver = clusterServiceResolver{recommended.SharedInformerFactory.Core().V1().Services().Lister()}
	return nil
}

// applyServing uses the listener and the certificates.
func (o CompletedOptions) applyServing(config *genericapiserver.Config) error {
	pair := o.SecureServing.ServerCert.CertKey
	if err := checkServingCertificate(pair.CertFile, pair.KeyFile); err != nil {
		return err
	}
	if err := o.SecureServing.ApplyToConfig(config); err != nil {
		return fmt.Errorf("configuring serving: %w", err)
	}
	return nil
}

// clusterServiceResolver finds conversion webhooks by the cluster's Services.
type clusterServiceResolver struct {
	services corev1listers.ServiceLister
}

// ResolveEndpoint returns the address of a Service's port.
func (r clusterServiceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return proxy.ResolveCluster(r.services, namespace, name, port)
}

// noServiceResolver refuses Services, which a standalone server does not have.
type noServiceResolver struct{}

// ResolveEndpoint always fails.
func (noServiceResolver) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("service %s/%s cannot be found by a standalone server: name the webhook by clientConfig.url instead", namespace, name)
}
