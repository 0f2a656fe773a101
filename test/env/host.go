// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env/ports"
)

// HostOptions says how to start a cluster's control plane. The zero value is
// one kube-apiserver with RBAC over an etcd of its own.
type HostOptions struct {
	// Name tells the hosts of one environment apart. Default "host".
	Name string
	// APIServers is the number of kube-apiservers over one etcd. Default 1.
	APIServers int
	// AuthorizationMode is RBAC by default. With ABAC, name the policy file in APIServerArgs.
	AuthorizationMode string
	// APIServerArgs are added to the arguments of every kube-apiserver; a
	// repeated flag overrides ours.
	APIServerArgs []string
	// LoopbackServices gives Services addresses of the environment's Network, where
	// a node of test/env/node serves them.
	LoopbackServices bool
	// Etcd is passed on; its name is <Name>-etcd.
	Etcd EtcdOptions
}

// Host is a running control plane.
type Host struct {
	Etcd *Etcd
	// APIServers are the kube-apiservers, all over Etcd.
	APIServers []*APIServer
	// ControllerManager is nil until StartControllerManager.
	ControllerManager *Process

	env  *Env
	name string
	pki  *pki
	// port is that of the load balancer in front of several kube-apiservers.
	port int
}

// APIServer is one kube-apiserver.
type APIServer struct {
	*Process

	// URL is the address of the server.
	URL string
}

// StartHost starts a control plane and waits until it serves and has made its
// own namespaces.
func (e *Env) StartHost(ctx context.Context, options HostOptions) (*Host, error) {
	if options.Name == "" {
		options.Name = "host"
	}
	if options.AuthorizationMode == "" {
		options.AuthorizationMode = "RBAC"
	}
	dir, err := e.mkdir(options.Name + "-pki")
	if err != nil {
		return nil, err
	}
	host := &Host{env: e, name: options.Name}
	var addresses []string
	if options.LoopbackServices {
		network := e.Network()
		addresses = []string{network.KubernetesIP()}
		options.APIServerArgs = append([]string{"--service-cluster-ip-range=" + network.ServiceCIDR()}, options.APIServerArgs...)
	}
	if host.pki, err = newPKI(dir, addresses...); err != nil {
		return nil, err
	}
	options.Etcd.Name = options.Name + "-etcd"
	if host.Etcd, err = e.StartEtcd(ctx, options.Etcd); err != nil {
		return nil, err
	}
	for range max(options.APIServers, 1) {
		server, err := host.startAPIServer(ctx, options)
		if err != nil {
			return nil, err
		}
		host.APIServers = append(host.APIServers, server)
	}
	if err := host.startBalancer(); err != nil {
		return nil, err
	}
	return host, host.waitForSystemObjects(ctx)
}

func (h *Host) startBalancer() error {
	if len(h.APIServers) == 1 {
		return nil
	}
	var backends []string
	for _, server := range h.APIServers {
		backends = append(backends, strings.TrimPrefix(server.URL, "https://"))
	}
	var err error
	h.port, err = h.env.startBalancer(backends)
	return err
}

// url is where all kube-apiservers are reached.
func (h *Host) url() string {
	if h.port == 0 {
		return h.APIServers[0].URL
	}
	return "https://" + ports.Address(h.port)
}

// BalancedConfig returns a client configuration of a user at whichever
// kube-apiserver accepts the connection.
func (h *Host) BalancedConfig(user string, groups ...string) (*rest.Config, error) {
	return h.configAt(h.url(), user, groups...)
}

// AddAPIServer starts one more kube-apiserver over the host's etcd. It is not in
// the load balancer and not in APIServers: the caller ends it.
func (h *Host) AddAPIServer(ctx context.Context, args ...string) (*APIServer, error) {
	return h.startAPIServer(ctx, HostOptions{AuthorizationMode: "RBAC", APIServerArgs: args})
}

func (h *Host) startAPIServer(ctx context.Context, options HostOptions) (*APIServer, error) {
	program, err := h.env.Program(programKubeAPIServer)
	if err != nil {
		return nil, err
	}
	port, err := h.env.ports.Take()
	if err != nil {
		return nil, err
	}
	server := &APIServer{URL: "https://" + ports.Address(port)}
	admin, err := h.configAt(server.URL, "admin", "system:masters")
	if err != nil {
		return nil, err
	}
	probe, err := ready(admin, "/readyz?verbose")
	if err != nil {
		return nil, err
	}
	args := append(h.apiServerArgs(options.AuthorizationMode, port), options.APIServerArgs...)
	server.Process, err = h.env.StartProcess(Command{
		Name: h.name + "-apiserver", Path: program, Args: args, Ready: probe,
	})
	if err != nil {
		return nil, err
	}
	return server, server.WaitReady(ctx)
}

func (h *Host) apiServerArgs(authorizationMode string, port int) []string {
	p := h.pki
	return append(h.Etcd.clientFlags(),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		// Loopback is no valid endpoint address, so the servers do not announce themselves.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file="+p.servingCert,
		"--tls-private-key-file="+p.servingKey,
		"--client-ca-file="+p.caFile,
		"--authorization-mode="+authorizationMode,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+p.serviceAccountKey,
		"--service-account-signing-key-file="+p.serviceAccountKey,
		"--requestheader-client-ca-file="+p.frontProxyCAFile,
		"--requestheader-allowed-names="+frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+p.frontProxyCert,
		"--proxy-client-key-file="+p.frontProxyKey,
		"--enable-aggregator-routing=false",
	)
}

// waitForSystemObjects waits for what a ready server may still be about to
// make: the default namespace and the ConfigMap that aggregated servers read.
func (h *Host) waitForSystemObjects(ctx context.Context) error {
	config, err := h.AdminConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client of the host: %w", err)
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		if _, last = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); last != nil {
			return false, nil
		}
		_, last = client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the system objects of %s: %w, last answer: %w", h.name, err, last)
	}
	return nil
}

// AdminConfig returns a client configuration that may do everything, at the
// first kube-apiserver.
func (h *Host) AdminConfig() (*rest.Config, error) {
	return h.ConfigFor(0, "admin", "system:masters")
}

// ConfigFor returns a client configuration of a user at the kube-apiserver with the given index.
func (h *Host) ConfigFor(server int, user string, groups ...string) (*rest.Config, error) {
	return h.configAt(h.APIServers[server].URL, user, groups...)
}

func (h *Host) configAt(url, user string, groups ...string) (*rest.Config, error) {
	client, err := h.pki.ca.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return clientConfig(url, h.pki.ca.PEM(), client), nil
}

// CAFile returns the file with the authority that signs serving and client certificates.
func (h *Host) CAFile() string { return h.pki.caFile }

// Kubeconfig writes a kubeconfig of a user at the first kube-apiserver and returns its path.
func (h *Host) Kubeconfig(user string, groups ...string) (string, error) {
	config, err := h.ConfigFor(0, user, groups...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(h.pki.dir, h.env.uniqueName(h.name+"-kubeconfig"))
	return path, WriteKubeconfig(path, config)
}

// Kubectl returns kubectl as a cluster administrator at the first kube-apiserver.
func (h *Host) Kubectl() (*Kubectl, error) {
	kubeconfig, err := h.Kubeconfig("admin", "system:masters")
	if err != nil {
		return nil, err
	}
	return h.env.Kubectl(kubeconfig)
}

// Stop stops everything in the order controller manager, API servers, etcd.
func (h *Host) Stop(ctx context.Context) error {
	var processes []*Process
	if h.ControllerManager != nil {
		processes = append(processes, h.ControllerManager)
	}
	for _, server := range h.APIServers {
		processes = append(processes, server.Process)
	}
	for _, process := range append(processes, h.Etcd.Process) {
		start := time.Now()
		if err := process.Stop(ctx); err != nil {
			return fmt.Errorf("after %s: %w", time.Since(start).Round(time.Millisecond), err)
		}
	}
	return nil
}
