// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env/ports"
)

// controllerUser is who annex-controller is in the host and in annex.
const controllerUser = "annex-controller"

// controllerManifest are the rights of annex-controller.
const controllerManifest = "config/rbac/annex-controller.yaml"

// ControllerOptions says how to start annex-controller.
type ControllerOptions struct {
	// Name tells the controllers of one environment apart. Default "annex-controller".
	Name string
	// Host and Annex are the two sides.
	Host  *Host
	Annex *Annex
	// Replicas is the number of processes. Default 1, without leader election.
	// More than one elect a leader and get a load balancer in front of their webhooks.
	Replicas int
	// Args are added to the arguments of every process; a repeated flag overrides ours.
	Args []string
}

// Controller is one or more annex-controllers. Kill, Stop, Restart and the log
// are those of the first.
type Controller struct {
	*Process

	// Replicas are the processes.
	Replicas []*Process

	options ControllerOptions
	env     *Env

	hostKubeconfig, annexKubeconfig string
	certDir                         string
	// webhookPort is the one that the host connects to.
	webhookPort int
}

// StartController starts annex-controller and waits until every process is
// ready. The API of AnnexedGroups is registered with the host before.
func (e *Env) StartController(ctx context.Context, options ControllerOptions) (*Controller, error) {
	if options.Name == "" {
		options.Name = "annex-controller"
	}
	options.Replicas = max(options.Replicas, 1)
	controller := &Controller{env: e, options: options}
	if err := controller.prepare(ctx); err != nil {
		return nil, err
	}
	ports, err := controller.takePorts()
	if err != nil {
		return nil, err
	}
	for _, port := range ports {
		process, err := controller.startProcess(port)
		if err != nil {
			return nil, err
		}
		controller.Replicas = append(controller.Replicas, process)
	}
	controller.Process = controller.Replicas[0]
	for _, process := range controller.Replicas {
		if err := process.WaitReady(ctx); err != nil {
			return nil, err
		}
	}
	return controller, nil
}

// prepare makes the controller's rights, kubeconfigs and serving certificate.
func (c *Controller) prepare(ctx context.Context) error {
	host := c.options.Host
	config, err := host.AdminConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client of the host: %w", err)
	}
	if err := grantRights(ctx, client, controllerManifest, controllerUser); err != nil {
		return fmt.Errorf("giving the controller its rights in the host: %w", err)
	}
	dir, err := c.env.mkdir(c.options.Name)
	if err != nil {
		return err
	}
	c.certDir = dir
	serving, err := host.pki.ca.Serving()
	if err != nil {
		return err
	}
	if _, _, err := serving.write(dir, "tls"); err != nil {
		return err
	}
	if c.hostKubeconfig, err = c.writeKubeconfig("host", host.url()); err != nil {
		return err
	}
	c.annexKubeconfig, err = c.writeKubeconfig("annex", c.options.Annex.url())
	return err
}

func (c *Controller) writeKubeconfig(name, url string) (string, error) {
	config, err := c.options.Host.configAt(url, controllerUser)
	if err != nil {
		return "", err
	}
	path := c.certDir + "/" + name + ".kubeconfig"
	return path, WriteKubeconfig(path, config)
}

// takePorts returns a webhook port for each process and chooses the one for the host.
func (c *Controller) takePorts() ([]int, error) {
	var taken []int
	var backends []string
	for range c.options.Replicas {
		port, err := c.env.ports.Take()
		if err != nil {
			return nil, err
		}
		taken = append(taken, port)
		backends = append(backends, ports.Address(port))
	}
	c.webhookPort = taken[0]
	if len(taken) == 1 {
		return taken, nil
	}
	var err error
	c.webhookPort, err = c.env.startBalancer(backends)
	return taken, err
}

func (c *Controller) startProcess(webhookPort int) (*Process, error) {
	program, err := c.env.Program(programController)
	if err != nil {
		return nil, err
	}
	probePort, err := c.env.ports.Take()
	if err != nil {
		return nil, err
	}
	probe, err := ready(&rest.Config{Host: "http://" + ports.Address(probePort)}, "/readyz?verbose")
	if err != nil {
		return nil, err
	}
	options := c.options
	var hosts, annexes []string
	for _, server := range options.Host.APIServers {
		hosts = append(hosts, server.URL)
	}
	for _, server := range options.Annex.Replicas {
		annexes = append(annexes, server.URL)
	}
	return c.env.StartProcess(Command{
		Name: options.Name, Path: program, Ready: probe,
		Args: append([]string{
			"--kubeconfig=" + c.hostKubeconfig,
			"--annex-kubeconfig=" + c.annexKubeconfig,
			fmt.Sprintf("--annex-service=%s/%s:%d", AnnexNamespace, options.Annex.name, options.Annex.port),
			"--annex-ca-file=" + options.Host.pki.caFile,
			"--host-endpoints=" + strings.Join(hosts, ","),
			"--annex-endpoints=" + strings.Join(annexes, ","),
			"--webhook-bind-address=127.0.0.1",
			fmt.Sprintf("--webhook-port=%d", webhookPort),
			"--webhook-cert-dir=" + c.certDir,
			"--webhook-ca-file=" + options.Host.pki.caFile,
			"--webhook-url=https://" + ports.Address(c.webhookPort),
			"--namespace=" + AnnexNamespace,
			fmt.Sprintf("--leader-elect=%t", options.Replicas > 1),
			"--health-probe-bind-address=" + ports.Address(probePort),
			"--metrics-bind-address=0",
		}, options.Args...),
	})
}
