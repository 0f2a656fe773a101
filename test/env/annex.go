// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/test/env/ports"
)

const (
	// AnnexNamespace holds the Service that stands for annex in the host.
	AnnexNamespace = "annex-system"
	// annexUser is who annex is in the host.
	annexUser = "annex-apiserver"
	// standaloneKubeconfig is what a standalone annex writes into its root folder.
	standaloneKubeconfig = "admin.kubeconfig"
)

// featureGatesVariable names feature gates in the environment that every annex-apiserver is started with, so
// that all tests can be run in another mode, for example CompactCache=false.
const featureGatesVariable = "ANNEX_FEATURE_GATES"

// AnnexOptions says how to start annex-apiserver. The zero value is one
// standalone process with embedded etcd.
type AnnexOptions struct {
	// Name tells the annexes of one environment apart and names the Service.
	// Default "annex".
	Name string
	// Host is the cluster to delegate to. Nil starts a standalone server.
	Host *Host
	// Replicas is the number of processes over one etcd. Default 1. More than
	// one need a Host, and get a load balancer in front.
	Replicas int
	// Embedded uses the etcd inside the process instead of an external one; a
	// standalone server always does.
	Embedded bool
	// Etcd is passed on for the external etcd; its name is <Name>-etcd and its
	// RevisionFloor is the default of annex-apiserver unless set.
	Etcd EtcdOptions
	// Args are added to the arguments of every process; a repeated flag overrides ours.
	Args []string
}

// Annex is one or more annex-apiservers over one etcd.
type Annex struct {
	// Replicas are the processes.
	Replicas []*AnnexServer
	// Etcd is nil when etcd is embedded.
	Etcd *Etcd

	env  *Env
	host *Host
	name string
	// port is the one that the host connects to.
	port int

	certFile, keyFile, kubeconfig string
}

// AnnexServer is one annex-apiserver.
type AnnexServer struct {
	*Process

	// URL is the address of the server itself, past kube-apiserver.
	URL string
	// RootDir is the folder of the embedded etcd and of a standalone server's credentials.
	RootDir string

	port int
}

// StartAnnex starts annex-apiserver and waits until every process serves. With
// a host it also gives annex's user the rights that it needs there.
func (e *Env) StartAnnex(ctx context.Context, options AnnexOptions) (*Annex, error) {
	if options.Name == "" {
		options.Name = "annex"
	}
	options.Replicas = max(options.Replicas, 1)
	if options.Replicas > 1 && (options.Host == nil || options.Embedded) {
		return nil, errors.New("starting annex: several replicas need a host and an external etcd")
	}
	annex := &Annex{env: e, host: options.Host, name: options.Name}
	if options.Host != nil {
		if err := annex.prepareHost(ctx); err != nil {
			return nil, err
		}
	}
	if options.Host != nil && !options.Embedded {
		if err := annex.startEtcd(ctx, options); err != nil {
			return nil, err
		}
	}
	for range options.Replicas {
		server, err := annex.startServer(options)
		if err != nil {
			return nil, err
		}
		annex.Replicas = append(annex.Replicas, server)
	}
	for _, server := range annex.Replicas {
		if err := server.WaitReady(ctx); err != nil {
			return nil, err
		}
	}
	return annex, annex.choosePort()
}

func (a *Annex) startEtcd(ctx context.Context, options AnnexOptions) error {
	options.Etcd.Name = options.Name + "-etcd"
	if options.Etcd.RevisionFloor == 0 {
		options.Etcd.RevisionFloor = embedded.DefaultRevisionFloor
	}
	var err error
	a.Etcd, err = a.env.StartEtcd(ctx, options.Etcd)
	return err
}

func (a *Annex) startServer(options AnnexOptions) (*AnnexServer, error) {
	program, err := a.env.Program(programAnnex)
	if err != nil {
		return nil, err
	}
	port, err := a.env.ports.Take()
	if err != nil {
		return nil, err
	}
	dir, err := a.env.mkdir(a.name + "-root")
	if err != nil {
		return nil, err
	}
	server := &AnnexServer{URL: "https://" + ports.Address(port), RootDir: dir, port: port}
	args := []string{"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--root-dir=" + dir}
	if gates := os.Getenv(featureGatesVariable); gates != "" {
		args = append(args, "--feature-gates="+gates)
	}
	probe := readyStandalone(filepath.Join(dir, standaloneKubeconfig))
	if a.host == nil {
		args = append(args, "--standalone")
	} else {
		args = append(args, a.delegationArgs(options.Replicas)...)
		if probe, err = a.readyDelegated(server); err != nil {
			return nil, err
		}
	}
	if a.Etcd != nil {
		args = append(args, a.Etcd.clientFlags()...)
	}
	server.Process, err = a.env.StartProcess(Command{
		Name: a.name + "-apiserver", Path: program, Args: append(args, options.Args...), Ready: probe,
	})
	return server, err
}

func (a *Annex) delegationArgs(replicas int) []string {
	return []string{
		"--kubeconfig=" + a.kubeconfig,
		"--authentication-kubeconfig=" + a.kubeconfig,
		"--authorization-kubeconfig=" + a.kubeconfig,
		"--tls-cert-file=" + a.certFile,
		"--tls-private-key-file=" + a.keyFile,
		fmt.Sprintf("--apiserver-count=%d", replicas),
		"--controller-user=" + controllerUser,
	}
}

func (a *Annex) readyDelegated(server *AnnexServer) (func(context.Context) error, error) {
	admin, err := a.host.configAt(server.URL, "admin", "system:masters")
	if err != nil {
		return nil, err
	}
	return ready(admin, "/readyz?verbose")
}

// readyStandalone waits for the kubeconfig first: the server makes it on its first start.
func readyStandalone(kubeconfig string) func(context.Context) error {
	return func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return err
		}
		probe, err := ready(config, "/readyz?verbose")
		if err != nil {
			return err
		}
		return probe(ctx)
	}
}

// choosePort puts a load balancer in front of several replicas.
func (a *Annex) choosePort() error {
	a.port = a.Replicas[0].port
	if len(a.Replicas) == 1 {
		return nil
	}
	var backends []string
	for _, server := range a.Replicas {
		backends = append(backends, ports.Address(server.port))
	}
	var err error
	a.port, err = a.env.startBalancer(backends)
	return err
}

// url is where all replicas are reached, past kube-apiserver.
func (a *Annex) url() string { return "https://" + ports.Address(a.port) }

// BalancedConfig returns a client configuration of a user at whichever replica
// accepts the connection, past kube-apiserver.
func (a *Annex) BalancedConfig(user string, groups ...string) (*rest.Config, error) {
	if a.host == nil {
		return nil, errors.New("a standalone annex has no load balancer")
	}
	return a.host.configAt(a.url(), user, groups...)
}

// AdminConfig returns a client configuration that may do everything, at the
// replica with the given index and past kube-apiserver.
func (a *Annex) AdminConfig(replica int) (*rest.Config, error) {
	if a.host != nil {
		return a.host.configAt(a.Replicas[replica].URL, "admin", "system:masters")
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(a.Replicas[replica].RootDir, standaloneKubeconfig))
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of %s: %w", a.Replicas[replica].Name(), err)
	}
	config.QPS = -1
	return config, nil
}

// FrontProxyConfig returns a client configuration at a replica that speaks for a
// user the way kube-apiserver does: by the front-proxy certificate and headers.
func (a *Annex) FrontProxyConfig(replica int, user string, groups ...string) (*rest.Config, error) {
	if a.host == nil {
		return nil, errors.New("a standalone annex trusts no front proxy")
	}
	config := clientConfig(a.Replicas[replica].URL, a.host.pki.ca.PEM(), a.host.pki.frontProxyPair)
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return transport.NewAuthProxyRoundTripper(user, "", groups, nil, inner)
	})
	return config, nil
}

// Kubectl returns kubectl as an administrator at a replica, past kube-apiserver.
func (a *Annex) Kubectl(replica int) (*Kubectl, error) {
	config, err := a.AdminConfig(replica)
	if err != nil {
		return nil, err
	}
	if config.CAFile != "" || config.CertFile != "" {
		if err := rest.LoadTLSFiles(config); err != nil {
			return nil, fmt.Errorf("reading the certificates of %s: %w", a.name, err)
		}
	}
	path := filepath.Join(a.Replicas[replica].RootDir, "test.kubeconfig")
	if err := WriteKubeconfig(path, config); err != nil {
		return nil, err
	}
	return a.env.Kubectl(path)
}
