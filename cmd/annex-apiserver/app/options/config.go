// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubeannex/annex/pkg/apiserver"
	"github.com/kubeannex/annex/pkg/features"
	"github.com/kubeannex/annex/pkg/standalone"
)

// Listen opens the port. It is done before anything else is started, so that
// an occupied port costs nothing.
func (o CompletedOptions) Listen() error {
	if o.SecureServing.Listener != nil {
		return nil
	}
	// Only the address counts here. Certificates are read later, because a standalone server has to make them first.
	listening := genericoptions.SecureServingOptions{
		BindAddress:          o.SecureServing.BindAddress,
		BindPort:             o.SecureServing.BindPort,
		BindNetwork:          o.SecureServing.BindNetwork,
		PermitPortSharing:    o.SecureServing.PermitPortSharing,
		PermitAddressSharing: o.SecureServing.PermitAddressSharing,
	}
	var info *genericapiserver.SecureServingInfo
	if err := listening.ApplyTo(&info); err != nil {
		return fmt.Errorf("%w: free the address or choose another with --bind-address and --secure-port", err)
	}
	o.SecureServing.Listener, o.SecureServing.BindPort = listening.Listener, listening.BindPort
	return nil
}

// Config turns the options into the configuration of a server, all but its
// storage: ApplyStorage completes it. It reads every file that a flag names.
// Listen and LockRootDir must have been called.
func (o CompletedOptions) Config() (*apiserver.Config, error) {
	if err := o.Etcd.checkFiles(); err != nil {
		return nil, err
	}
	if err := o.checkClusters(); err != nil {
		return nil, err
	}
	config := apiserver.NewConfig()
	generic := &config.GenericConfig.Config
	if err := o.ServerRun.ApplyTo(generic); err != nil {
		return nil, err
	}
	// The order follows from what needs what: traces wrap the client that serving makes.
	serving, credentials, err := o.serving()
	if err != nil {
		return nil, err
	}
	if err := serving.ApplyToConfig(generic); err != nil {
		return nil, fmt.Errorf("configuring serving: %w: correct the --tls flags", err)
	}
	if err := o.EgressSelector.ApplyTo(generic); err != nil {
		return nil, fmt.Errorf("configuring egress: %w: correct --egress-selector-config-file", err)
	}
	if err := o.Traces.ApplyTo(generic.EgressSelector, generic); err != nil {
		return nil, fmt.Errorf("configuring traces: %w: correct --tracing-config-file", err)
	}
	if err := o.Audit.ApplyTo(generic); err != nil {
		return nil, fmt.Errorf("configuring audit: %w: correct --audit-policy-file and the other --audit flags", err)
	}
	if credentials != nil {
		err = o.applyStandalone(config, credentials)
	} else {
		err = o.applyDelegated(config)
	}
	if err != nil {
		return nil, err
	}
	if config.ExtraConfig.ReplicaName, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("reading the name of the host: %w", err)
	}
	config.ExtraConfig.CompactCache = generic.FeatureGate.Enabled(features.CompactCache)
	config.ExtraConfig.ReplicaCount = o.ReplicaCount
	config.ExtraConfig.ControllerUser = o.ControllerUser
	config.ExtraConfig.Gated = !o.Standalone.Enabled
	// The third argument is the client for a webhook behind the Service default/kubernetes. kube-apiserver gives its
	// own, being that Service. Here it is another process, which must not get a token of this one.
	config.ExtraConfig.AuthResolverWrapper = webhook.NewDefaultAuthenticationInfoResolverWrapper(
		nil, generic.EgressSelector, &rest.Config{}, generic.TracerProvider)
	return config, nil
}

// checkClusters looks for the cluster before a certificate is made for a server that has none.
func (o CompletedOptions) checkClusters() error {
	if o.Standalone.Enabled {
		return nil
	}
	for _, cluster := range []struct{ flag, file string }{
		{"--kubeconfig", o.CoreAPI.CoreAPIKubeconfigPath},
		{"--authentication-kubeconfig", o.Authentication.Delegating.RemoteKubeConfigFile},
		{"--authorization-kubeconfig", o.Authorization.Delegating.RemoteKubeConfigFile},
	} {
		_, err := clusterConfig(cluster.file)
		if errors.Is(err, rest.ErrNotInCluster) {
			return fmt.Errorf("no cluster found: give %s, or --standalone to run without a cluster", cluster.flag)
		}
		if err != nil {
			return fmt.Errorf("connecting to the cluster: reading %s %s: %w: correct %s", cluster.flag, cluster.file, err, cluster.flag)
		}
	}
	return nil
}

// clusterConfig reads a kubeconfig. Without a file it is that of the pod. What is sent is in
// protobuf: authorizers and authenticators go past the generated clients, which
// would ask for that by themselves.
func clusterConfig(file string) (config *rest.Config, err error) {
	if file == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", file)
	}
	if err != nil {
		return nil, err
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return config, nil
}

// serving returns the serving options with certificates, made where there were
// none, and the credentials of a standalone server. The receiver stays as it is.
func (o CompletedOptions) serving() (*genericoptions.SecureServingOptionsWithLoopback, *standalone.Credentials, error) {
	copied := *o.SecureServing.SecureServingOptions
	serving := copied.WithLoopback()
	pair := &serving.ServerCert.CertKey
	if !o.Standalone.Enabled {
		if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", o.AlternateNames, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
			return nil, nil, fmt.Errorf("generating a serving certificate: %w: make --cert-dir writable or give --tls-cert-file", err)
		}
		return serving, nil, checkServingCertificate(pair.CertFile, pair.KeyFile)
	}
	credentials, err := standalone.Prepare(o.Standalone.RootDir, serving.Listener.Addr().(*net.TCPAddr), o.AlternateNames)
	if err != nil {
		return nil, nil, err
	}
	if pair.CertFile == "" {
		pair.CertFile, pair.KeyFile = credentials.ServingCertFile, credentials.ServingKeyFile
	} else {
		// The administrator's kubeconfig trusts the server's own authority only, and asks for this name.
		serving.SNICertKeys = append(slices.Clone(serving.SNICertKeys), cliflag.NamedCertKey{
			Names: []string{standalone.ServerName}, CertFile: credentials.ServingCertFile, KeyFile: credentials.ServingKeyFile,
		})
	}
	return serving, credentials, checkServingCertificate(pair.CertFile, pair.KeyFile)
}

// applyStandalone configures a server that has no cluster to ask.
func (o CompletedOptions) applyStandalone(config *apiserver.Config, credentials *standalone.Credentials) error {
	generic := &config.GenericConfig.Config
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
	if err := o.CoreAPI.ApplyTo(recommended); err != nil {
		return fmt.Errorf("connecting to the cluster: %w: correct --kubeconfig", err)
	}
	if err := checkCertificate("--client-ca-file", o.Authentication.Delegating.ClientCert.ClientCA); err != nil {
		return err
	}
	if err := o.Authentication.applyDelegated(&recommended.Authentication, recommended.SecureServing, recommended.OpenAPIConfig); err != nil {
		return fmt.Errorf("configuring delegated authentication: %w: correct --authentication-kubeconfig", err)
	}
	if err := o.Authentication.waitForTrust(config); err != nil {
		return fmt.Errorf("reading authentication settings of the cluster: %w: correct --authentication-kubeconfig", err)
	}
	if err := o.Authorization.applyDelegated(&recommended.Authorization); err != nil {
		return fmt.Errorf("configuring delegated authorization: %w: correct --authorization-kubeconfig", err)
	}
	kubeClient, dynamicClient, err := clusterClients(recommended.ClientConfig)
	if err != nil {
		return fmt.Errorf("creating a client of the cluster: %w: correct --kubeconfig", err)
	}
	o.bearMissingAPIs(config)
	if err := o.Features.ApplyTo(&recommended.Config, kubeClient, recommended.SharedInformerFactory); err != nil {
		return err
	}
	fallBackToLimits(config)
	if err := o.applyAdmission(config, kubeClient, dynamicClient); err != nil {
		return fmt.Errorf("configuring admission: %w: correct the --admission flags", err)
	}
	config.ExtraConfig.ServiceResolver = clusterServiceResolver{recommended.SharedInformerFactory.Core().V1().Services().Lister()}
	return nil
}

// clusterClients returns the clients with which admission asks the cluster. They are
// not limited, as the client of kube-apiserver for itself is not (k8s.io/apiserver
// pkg/server/config_selfclient.go). By default it were five requests a second, and a
// creation in a namespace that does not exist needs one.
func clusterClients(config *rest.Config) (kubernetes.Interface, dynamic.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	kubeClient, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	return kubeClient, dynamicClient, err
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
