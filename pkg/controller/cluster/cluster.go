// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster names the API servers that the controller talks to: the host
// (kube-apiserver) and annex, each as a whole and process by process.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
)

// Server is an API server, or several behind one address.
type Server struct {
	// Name is what messages call it, such as "kube-apiserver https://10.0.0.1:6443".
	Name string
	// Config is what the clients were made from.
	Config *rest.Config

	// Kube is for the types that kube-apiserver has compiled in. Annex has none of them.
	Kube kubernetes.Interface
	// Definitions is for CustomResourceDefinitions.
	Definitions apiextensionsclient.Interface
	// Dynamic and Metadata are for custom resources.
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
	// APIServices is for the host only.
	APIServices aggregatorclient.Interface
	// Groups is for AnnexedGroups.
	Groups annexclient.Interface

	httpClient *http.Client
}

// Reconnect makes the next request open a new connection, which a load balancer
// may lead to another process.
func (s *Server) Reconnect() { utilnet.CloseIdleConnectionsFor(s.httpClient.Transport) }

// NewServer makes the clients. They share one connection.
func NewServer(name string, config *rest.Config) (*Server, error) {
	return NewFollowingServer(name, config, nil)
}

// NewFollowingServer is NewServer for a server that is verified by a bundle
// instead of the authority of config. No bundle means that of config, and so do
// credentials from a command, which bring a transport of their own.
func NewFollowingServer(name string, config *rest.Config, bundle *Bundle) (*Server, error) {
	transported := config
	if bundle != nil && config.ExecProvider == nil {
		var err error
		if transported, err = following(config, bundle); err != nil {
			return nil, fmt.Errorf("making a client of %s: %w", name, err)
		}
	}
	httpClient, err := rest.HTTPClientFor(transported)
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", name, err)
	}
	s := &Server{Name: name, Config: config, httpClient: httpClient}
	var errs [6]error
	s.Kube, errs[0] = kubernetes.NewForConfigAndClient(config, httpClient)
	s.Definitions, errs[1] = apiextensionsclient.NewForConfigAndClient(config, httpClient)
	s.Dynamic, errs[2] = dynamic.NewForConfigAndClient(config, httpClient)
	s.Metadata, errs[3] = metadata.NewForConfigAndClient(config, httpClient)
	s.APIServices, errs[4] = aggregatorclient.NewForConfigAndClient(config, httpClient)
	s.Groups, errs[5] = annexclient.NewForConfigAndClient(config, httpClient)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", name, err)
	}
	return s, nil
}

// Endpoints returns every process of a server, each reached past load balancers.
type Endpoints func(context.Context) ([]*Server, error)

// Connections are both sides.
type Connections struct {
	// Host is the cluster's kube-apiserver.
	Host *Server
	// HostEndpoints are all its processes.
	HostEndpoints Endpoints
	// HostSampling is for hosts whose processes cannot be reached one by one: what
	// has to hold on every process is asked for over new connections for that
	// long, and must be answered well each time. Zero asks once.
	HostSampling time.Duration
	// Annex is annex-apiserver, past the host.
	Annex *Server
	// AnnexEndpoints are all its replicas.
	AnnexEndpoints Endpoints
	// AnnexLeaving are replicas that end. Nil when they cannot be known.
	AnnexLeaving Endpoints

	// AnnexService is what APIServices of adopted groups name, AnnexCA the
	// authorities (PEM) of annex's serving certificate. They are asked for each time,
	// and nil while they are not known.
	AnnexService apiregistrationv1.ServiceReference
	AnnexCA      func() []byte
	// Webhook is how kube-apiserver reaches the controller's webhook server, without a
	// path and caBundle. Its authorities are WebhookCA.
	Webhook   admissionregistrationv1.WebhookClientConfig
	WebhookCA func() []byte
	// Username is who the controller is at the host. The fence lets it pass.
	Username string
	// Namespace is where the controller keeps its own objects in the host.
	Namespace string
}

// WebhookClient is Webhook with the authorities of now. Nobody else may be told
// how to reach the webhooks: without authorities kube-apiserver could not verify them.
func (c *Connections) WebhookClient() admissionregistrationv1.WebhookClientConfig {
	config := *c.Webhook.DeepCopy()
	if c.WebhookCA != nil {
		config.CABundle = c.WebhookCA()
	}
	return config
}
