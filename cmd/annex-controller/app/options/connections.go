// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"os"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// userAgent names the controller in audit logs.
const userAgent = "annex-controller"

// Connections reads the files and makes the clients. It sends nothing.
func (o CompletedOptions) Connections() (*cluster.Connections, error) {
	host, err := o.hostConfig()
	if err != nil {
		return nil, err
	}
	annex, err := o.annexConfig(host)
	if err != nil {
		return nil, err
	}
	service, err := parseService(o.AnnexService)
	if err != nil {
		return nil, err
	}
	connections := &cluster.Connections{
		AnnexService: *service,
		Namespace:    o.Namespace,
		HostSampling: o.HostSampling,
	}
	if connections.AnnexCA, err = o.annexCA(annex); err != nil {
		return nil, err
	}
	if connections.Webhook, err = o.webhookClient(); err != nil {
		return nil, err
	}
	if connections.Host, err = cluster.NewServer("the cluster", host); err != nil {
		return nil, err
	}
	if connections.Annex, err = cluster.NewServer("annex", annex); err != nil {
		return nil, err
	}
	return connections, o.connectEndpoints(connections)
}

// connectEndpoints chooses between flags and EndpointSlices.
func (o CompletedOptions) connectEndpoints(connections *cluster.Connections) error {
	hostName, err := cluster.ServerName(connections.Host.Config)
	if err != nil {
		return err
	}
	annexServerName, err := cluster.ServerName(connections.Annex.Config)
	if err != nil {
		return err
	}
	hosts := cluster.NewPool("kube-apiserver", connections.Host.Config, hostName)
	replicas := cluster.NewPool("annex-apiserver", connections.Annex.Config, annexServerName)
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

func (o CompletedOptions) hostConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
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
	service, err := parseService(o.AnnexService)
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

func (o CompletedOptions) annexCA(annex *rest.Config) ([]byte, error) {
	if o.AnnexCAFile != "" {
		content, err := os.ReadFile(o.AnnexCAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the authority of annex: %w: correct --annex-ca-file", err)
		}
		return content, nil
	}
	tls, err := annex.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the authority of annex: %w", err)
	}
	if _, err := transport.TLSConfigFor(tls); err != nil {
		return nil, fmt.Errorf("reading the authority of annex: %w: correct --annex-kubeconfig", err)
	}
	if len(tls.TLS.CAData) == 0 {
		return nil, fmt.Errorf("the kubeconfig %s names no authority: name it by --annex-ca-file", o.AnnexKubeconfig)
	}
	return tls.TLS.CAData, nil
}

func (o CompletedOptions) webhookClient() (admissionregistrationv1.WebhookClientConfig, error) {
	authority, err := os.ReadFile(o.Webhook.CAFile)
	if err != nil {
		return admissionregistrationv1.WebhookClientConfig{}, fmt.Errorf("reading the authority of the webhook server: %w: correct --webhook-ca-file", err)
	}
	config := admissionregistrationv1.WebhookClientConfig{CABundle: authority}
	if o.Webhook.URL != "" {
		config.URL = ptr.To(o.Webhook.URL)
		return config, nil
	}
	config.Service = &admissionregistrationv1.ServiceReference{Namespace: o.Namespace, Name: webhookService, Port: ptr.To[int32](443)}
	return config, nil
}
