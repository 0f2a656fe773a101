// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"net/url"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/controller/certificates"
	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// userAgent names the controller in audit logs.
const userAgent = "annex-controller"

// Connections reads the files and makes the clients. It sends nothing.
func (o CompletedOptions) Connections() (*cluster.Connections, *Authorities, error) {
	host, err := o.hostConfig()
	if err != nil {
		return nil, nil, err
	}
	annex, err := o.annexConfig(host)
	if err != nil {
		return nil, nil, err
	}
	service, err := ParseService(o.AnnexService)
	if err != nil {
		return nil, nil, err
	}
	authorities, err := o.authorities(annex)
	if err != nil {
		return nil, nil, err
	}
	connections := &cluster.Connections{
		AnnexService: *service,
		AnnexCA:      authorities.Annex.CABundle,
		Webhook:      o.webhookClient(),
		WebhookCA:    authorities.Webhooks.CABundle,
		Namespace:    o.Namespace,
		HostSampling: o.HostSampling,
	}
	if connections.Host, err = cluster.NewServer("the cluster", host); err != nil {
		return nil, nil, err
	}
	trusted, err := o.trusted(annex, authorities)
	if err != nil {
		return nil, nil, err
	}
	if connections.Annex, err = cluster.NewFollowingServer("annex", annex, trusted); err != nil {
		return nil, nil, err
	}
	return connections, authorities, o.connectEndpoints(connections, trusted)
}

// trusted is by whom annex is verified, nil for the authority that its kubeconfig names.
func (o CompletedOptions) trusted(annex *rest.Config, authorities *Authorities) (*cluster.Bundle, error) {
	if o.AnnexKubeconfig != "" {
		if content, err := authorityOf(annex); err != nil || len(content) > 0 {
			return nil, err
		}
	}
	if o.Certificates.Issue && annex.ExecProvider != nil {
		return nil, errors.New("--issue-certificates does not go with credentials from a command: name a kubeconfig with a token or a certificate by --annex-kubeconfig")
	}
	return authorities.Annex, nil
}

// connectEndpoints chooses between flags and EndpointSlices.
func (o CompletedOptions) connectEndpoints(connections *cluster.Connections, trusted *cluster.Bundle) error {
	hostName, err := cluster.ServerName(connections.Host.Config)
	if err != nil {
		return err
	}
	annexServerName, err := cluster.ServerName(connections.Annex.Config)
	if err != nil {
		return err
	}
	hosts := cluster.NewPool("kube-apiserver", connections.Host.Config, hostName)
	replicas := cluster.NewPool("annex-apiserver", connections.Annex.Config, annexServerName).Follow(trusted)
	connections.HostEndpoints = cluster.Sliced(hosts, connections.Host.Kube, "default", "kubernetes")
	if len(o.HostEndpoints) > 0 {
		connections.HostEndpoints = cluster.Fixed(hosts, o.HostEndpoints)
	}
	connections.AnnexEndpoints = cluster.Sliced(replicas, connections.Host.Kube, connections.AnnexService.Namespace, connections.AnnexService.Name)
	connections.AnnexLeaving = cluster.Leaving(replicas, connections.Host.Kube, connections.AnnexService.Namespace, connections.AnnexService.Name)
	if len(o.AnnexEndpoints) > 0 {
		connections.AnnexLeaving = nil
		connections.AnnexEndpoints = cluster.Fixed(replicas, o.AnnexEndpoints)
	}
	return nil
}

// hostConfig does not have clientcmd look for the cluster that the process runs in: it warns of a missing
// kubeconfig, which is no mistake.
func (o CompletedOptions) hostConfig() (*rest.Config, error) {
	read := rest.InClusterConfig
	if o.Kubeconfig != "" {
		read = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", o.Kubeconfig) }
	}
	config, err := read()
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w: name a kubeconfig by --kubeconfig", err)
	}
	return unlimited(config), nil
}

// annexConfig reaches annex past the host. A replica is verified by the name of
// the Service, whatever its address is.
func (o CompletedOptions) annexConfig(host *rest.Config) (*rest.Config, error) {
	if o.AnnexKubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", o.AnnexKubeconfig)
		if err != nil {
			return nil, fmt.Errorf("connecting to annex: %w: correct --annex-kubeconfig", err)
		}
		return unlimited(config), nil
	}
	service, err := ParseService(o.AnnexService)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(host)
	serverName := service.Name + "." + service.Namespace + ".svc"
	config.Host = fmt.Sprintf("https://%s:%d", serverName, *service.Port)
	config.ServerName = serverName
	config.CAFile, config.CAData = o.AnnexCAFile, nil
	return config, nil
}

// unlimited leaves limits to the fairness of the server.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	config.UserAgent = userAgent
	return config
}

// webhookClient is how the host reaches the webhooks, without authorities.
func (o CompletedOptions) webhookClient() admissionregistrationv1.WebhookClientConfig {
	if o.Webhook.URL != "" {
		return admissionregistrationv1.WebhookClientConfig{URL: ptr.To(o.Webhook.URL)}
	}
	return admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: o.Namespace, Name: webhookService, Port: ptr.To[int32](443)},
	}
}

// webhookNames are the name of the Service and, if there is one, that of the URL.
func (o CompletedOptions) webhookNames() (service string, others []string, err error) {
	service = webhookService + "." + o.Namespace + ".svc"
	if o.Webhook.URL == "" {
		return service, nil, nil
	}
	address, err := url.Parse(o.Webhook.URL)
	if err != nil {
		return "", nil, fmt.Errorf("parsing --webhook-url: %w", err)
	}
	return service, []string{address.Hostname()}, nil
}

// Leaves are the certificates that the controller issues for annex and itself.
func (o CompletedOptions) Leaves() ([]certificates.Leaf, error) {
	annex, err := ParseService(o.AnnexService)
	if err != nil {
		return nil, err
	}
	service, others, err := o.webhookNames()
	if err != nil {
		return nil, err
	}
	return []certificates.Leaf{
		certificates.ServerLeaf(o.Certificates.ClusterDomain, annex.Name+"."+annex.Namespace+".svc"),
		certificates.ControllerLeaf(o.Certificates.ClusterDomain, service, others...),
	}, nil
}

// WebhookEndpoints are all processes that serve webhooks.
func (o CompletedOptions) WebhookEndpoints(connections *cluster.Connections, authorities *Authorities) (cluster.Endpoints, error) {
	service, others, err := o.webhookNames()
	if err != nil {
		return nil, err
	}
	if len(others) > 0 {
		return cluster.Fixed(cluster.NewPool("annex-controller", &rest.Config{}, others[0]).Follow(authorities.Webhooks), []string{o.Webhook.URL}), nil
	}
	pool := cluster.NewPool("annex-controller", &rest.Config{}, service).Follow(authorities.Webhooks)
	return cluster.Sliced(pool, connections.Host.Kube, o.Namespace, webhookService), nil
}
