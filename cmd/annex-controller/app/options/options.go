// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options holds the flags of annex-controller and turns them into its connections.
package options

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

// DefaultAnnexService is the Service of the chart in its usual namespace.
const DefaultAnnexService = "annex-system/annex:443"

const (
	defaultNamespace   = "annex-system"
	defaultWebhookPort = 9443
	// defaultRequestTimeout is that of kube-apiserver.
	defaultRequestTimeout = time.Minute
	// maxHostSampling keeps a fence below the ten seconds that clients wait.
	maxHostSampling = 1500 * time.Millisecond
	// webhookService is the Service of the controller's webhook server, in its namespace.
	webhookService = "annex-controller"
)

// Options are the flags of annex-controller.
type Options struct {
	// Kubeconfig is for the host. Empty means the cluster that the process runs in.
	Kubeconfig string
	// AnnexKubeconfig is for annex, past the host. Empty means the host's credentials at AnnexService.
	AnnexKubeconfig string
	// AnnexService is what APIServices name, as namespace/name:port.
	AnnexService string
	// AnnexCAFile holds the authority of annex's serving certificate.
	AnnexCAFile string
	// HostEndpoints and AnnexEndpoints are the URLs of all processes. Empty means EndpointSlices.
	HostEndpoints  []string
	AnnexEndpoints []string
	// HostSampling is how long the host is asked over new connections where its processes have no addresses of their own.
	HostSampling time.Duration
	// HostRequestTimeout is the --request-timeout of the host's kube-apiservers.
	HostRequestTimeout time.Duration
	// Dependents are the kinds that objects of groups can own, as group/resource. Empty means all.
	Dependents []string
	// Webhook is the controller's own server.
	Webhook WebhookOptions
	// Certificates say who issues them.
	Certificates CertificateOptions
	// Namespace is where the controller keeps its own objects.
	Namespace string
	// LeaderElect makes one of several processes work and the others wait.
	LeaderElect bool
	// HealthProbeBindAddress and MetricsBindAddress are host:port; "0" serves nothing.
	HealthProbeBindAddress string
	MetricsBindAddress     string
	Logs                   *logs.Options
}

// WebhookOptions say where the webhook server listens and how the host reaches it.
type WebhookOptions struct {
	BindAddress string
	Port        int
	// CertDir holds tls.crt and tls.key, which are read again when they change.
	CertDir string
	// CAFile holds the authority of that certificate.
	CAFile string
	// URL is the address for the host. Empty means the Service annex-controller.
	URL string
}

// NewOptions returns the default values.
func NewOptions() *Options {
	return &Options{
		AnnexService:           DefaultAnnexService,
		HostRequestTimeout:     defaultRequestTimeout,
		Namespace:              defaultNamespace,
		LeaderElect:            true,
		HealthProbeBindAddress: ":8081",
		MetricsBindAddress:     ":8080",
		Webhook:                WebhookOptions{Port: defaultWebhookPort},
		Certificates: CertificateOptions{
			Validity: defaultValidity, AuthorityValidity: defaultAuthorityValidity, Settling: defaultSettling, ClusterDomain: defaultClusterDomain,
		},
		Logs: logs.NewOptions(),
	}
}

// Flags returns the flags by section.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sections cliflag.NamedFlagSets
	o.addClusterFlags(sections.FlagSet("cluster"))
	o.addMoveFlags(sections.FlagSet("cluster"))
	o.addAnnexFlags(sections.FlagSet("annex"))
	o.Webhook.addFlags(sections.FlagSet("webhooks"))
	o.Certificates.addFlags(sections.FlagSet("certificates"))
	o.addControllerFlags(sections.FlagSet("controller"))
	logsapi.AddFlags(o.Logs, sections.FlagSet("logs"))
	return sections
}

func (o *Options) addClusterFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "The kubeconfig file of the cluster. By default the cluster that the process runs in.")
	fs.StringSliceVar(&o.HostEndpoints, "host-endpoints", o.HostEndpoints,
		"The URLs of all kube-apiservers, past load balancers. By default they are read from the EndpointSlices of the Service default/kubernetes.")
	fs.DurationVar(&o.HostSampling, "host-sampling", o.HostSampling,
		"Where kube-apiservers can only be reached through a load balancer, how long each step of a move is confirmed over new connections before it counts, "+
			"such as 1s. It lengthens the time in which writes wait by four times as much. At most 1.5s. By default each of --host-endpoints is asked once.")
}

func (o *Options) addMoveFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.HostRequestTimeout, "host-request-timeout", o.HostRequestTimeout,
		"How long a request may live in kube-apiserver: its --request-timeout. For so long after an adoption a write of before it may still arrive in the cluster's etcd, "+
			"so the cluster's own copies are compared once more then, and a release waits for that.")
	fs.StringSliceVar(&o.Dependents, "dependents", o.Dependents,
		"All kinds that objects of adopted groups own, as group/resource, such as /configmaps,apps/deployments,argoproj.io/*. A release that gives objects new UIDs repairs the owner references there "+
			"and in the group itself; what else names them as owners, the cluster's garbage collector deletes after it. By default every kind of the cluster is searched, which annex-controller has to be allowed to list.")
}

func (o *Options) addAnnexFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.AnnexKubeconfig, "annex-kubeconfig", o.AnnexKubeconfig,
		"The kubeconfig file of annex itself, past the cluster. By default the credentials of the cluster are used at the Service --annex-service.")
	fs.StringVar(&o.AnnexService, "annex-service", o.AnnexService, "The Service of annex that APIServices name, as namespace/name:port.")
	fs.StringVar(&o.AnnexCAFile, "annex-ca-file", o.AnnexCAFile,
		"The file with the authority of annex's serving certificate, which APIServices name. It is read again when it changes. By default that of --annex-kubeconfig.")
	fs.StringSliceVar(&o.AnnexEndpoints, "annex-endpoints", o.AnnexEndpoints,
		"The URLs of all replicas of annex, past load balancers. By default they are read from the EndpointSlices of --annex-service.")
}

func (o *WebhookOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.BindAddress, "webhook-bind-address", o.BindAddress, "The address that the webhook server listens on. By default all.")
	fs.IntVar(&o.Port, "webhook-port", o.Port, "The port that the webhook server listens on.")
	fs.StringVar(&o.CertDir, "webhook-cert-dir", o.CertDir, "The directory with tls.crt and tls.key of the webhook server. They are read again when they change.")
	fs.StringVar(&o.CAFile, "webhook-ca-file", o.CAFile, "The file with the authority of that certificate. It is read again when it changes. By default ca.crt in --webhook-cert-dir.")
	fs.StringVar(&o.URL, "webhook-url", o.URL, "The address at which kube-apiserver reaches the webhook server. By default the Service "+webhookService+" in --namespace.")
}

func (o *Options) addControllerFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "The namespace of annex-controller.")
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "Makes one of several processes work and the others wait.")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, "The address of /livez and /readyz. 0 serves none.")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "The address of /metrics. 0 serves none.")
}

// CompletedOptions can only be had from Options.Complete.
type CompletedOptions struct {
	*completedOptions
}

type completedOptions struct {
	*Options
}

// Complete fills in what follows from other flags. It does no I/O.
func (o *Options) Complete() (CompletedOptions, error) {
	if o.Webhook.CAFile == "" && o.Webhook.CertDir != "" {
		o.Webhook.CAFile = strings.TrimSuffix(o.Webhook.CertDir, "/") + "/ca.crt"
	}
	o.Webhook.URL = strings.TrimSuffix(o.Webhook.URL, "/")
	return CompletedOptions{&completedOptions{o}}, nil
}

// Validate returns everything that is wrong with the flags.
func (o CompletedOptions) Validate() []error {
	var errs []error
	if _, err := ParseService(o.AnnexService); err != nil {
		errs = append(errs, err)
	}
	if o.Namespace == "" {
		errs = append(errs, errors.New("--namespace is empty: name the namespace of annex-controller"))
	}
	if _, err := o.DependentKinds(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, o.validateFiles()...)
	errs = append(errs, o.Certificates.validate()...)
	if o.Webhook.Port < 1 || o.Webhook.Port > 65535 {
		errs = append(errs, fmt.Errorf("--webhook-port is %d: it must be between 1 and 65535", o.Webhook.Port))
	}
	if o.HostSampling < 0 || o.HostSampling > maxHostSampling {
		errs = append(errs, fmt.Errorf("--host-sampling is %s: it must be between 0 and %s", o.HostSampling, maxHostSampling))
	}
	addresses := map[string][]string{"--host-endpoints": o.HostEndpoints, "--annex-endpoints": o.AnnexEndpoints}
	if o.Webhook.URL != "" {
		addresses["--webhook-url"] = []string{o.Webhook.URL}
	}
	for _, flag := range []string{"--host-endpoints", "--annex-endpoints", "--webhook-url"} {
		for _, address := range addresses[flag] {
			if parsed, err := url.Parse(address); err != nil || parsed.Scheme != "https" || parsed.Host == "" {
				errs = append(errs, fmt.Errorf("%s has %q: write https://host:port", flag, address))
			}
		}
	}
	return errs
}

// validateFiles returns what is wrong with the files of certificates: they are
// needed unless the controller issues certificates itself.
func (o CompletedOptions) validateFiles() []error {
	if o.Certificates.Issue {
		if o.AnnexCAFile != "" || o.Webhook.CertDir != "" || o.Webhook.CAFile != "" {
			return []error{errors.New("--issue-certificates needs no files: leave --annex-ca-file, --webhook-cert-dir and --webhook-ca-file out")}
		}
		return nil
	}
	var errs []error
	if o.AnnexKubeconfig == "" && o.AnnexCAFile == "" {
		errs = append(errs, errors.New("--annex-ca-file is needed without --annex-kubeconfig and --issue-certificates: name the file with the authority of annex's serving certificate"))
	}
	if o.Webhook.CertDir == "" {
		errs = append(errs, errors.New("--webhook-cert-dir is empty: name the directory with tls.crt and tls.key, or add --issue-certificates"))
	}
	return errs
}

// DependentKinds takes the kinds of --dependents apart.
func (o CompletedOptions) DependentKinds() ([]schema.GroupResource, error) {
	var kinds []schema.GroupResource
	for _, kind := range o.Dependents {
		group, resource, ok := strings.Cut(kind, "/")
		if !ok || resource == "" || strings.Contains(resource, "/") {
			return nil, fmt.Errorf("--dependents has %q: write group/resource, such as /configmaps or apps/deployments", kind)
		}
		kinds = append(kinds, schema.GroupResource{Group: group, Resource: resource})
	}
	return kinds, nil
}

// ParseService takes the namespace/name:port of --annex-service apart.
func ParseService(service string) (*apiregistrationv1.ServiceReference, error) {
	namespace, rest, ok := strings.Cut(service, "/")
	name, portText, splitErr := net.SplitHostPort(rest)
	number, numberErr := strconv.ParseUint(portText, 10, 16)
	if !ok || splitErr != nil || numberErr != nil || namespace == "" || name == "" || number == 0 {
		return nil, fmt.Errorf("--annex-service is %q: write namespace/name:port", service)
	}
	return &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: ptr.To(int32(number))}, nil
}
