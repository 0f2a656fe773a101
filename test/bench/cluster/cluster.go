// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/env"
)

// Sizes say how much the cluster holds.
type Sizes struct {
	dataset.Shape

	// Endpoints, Reports and Flows are numbers of objects on each side.
	Endpoints, Reports, Flows int
}

// Count is the number of objects of a kind.
func (s Sizes) Count(kind dataset.Kind) int {
	switch kind {
	case dataset.Reports:
		return s.Reports
	case dataset.Flows:
		return s.Flows
	default:
		return s.Endpoints
	}
}

// Options say what to start.
type Options struct {
	// Env owns the processes. The caller closes it.
	Env *env.Env
	// Sizes say what Fill creates.
	Sizes Sizes
	// Progress is told what happens, one line each. Nil means nobody is.
	Progress func(format string, args ...any)
}

// Cluster is a running host and annex. Its processes end with its Env.
type Cluster struct {
	Options

	Host  *env.Host
	Annex *env.Annex
	// Idle is how many cores the processes of a side keep busy while nobody asks for
	// anything, by the name of the side. Warm measures it.
	Idle map[string]float64

	hostConfig, annexConfig *rest.Config
}

// Start starts all processes, installs the kinds on both sides and sends annex's
// group of the host to annex. The kinds have no objects yet: call Fill.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.Progress == nil {
		options.Progress = func(string, ...any) {}
	}
	c := &Cluster{Options: options}
	if err := c.startServers(ctx); err != nil {
		return nil, err
	}
	// Indexes are chosen when the definitions are opened.
	if err := OpenGroup(ctx, c.annexConfig, dataset.AnnexedGroup); err != nil {
		return nil, err
	}
	for _, kind := range dataset.Kinds() {
		definition := dataset.Definition(dataset.HostGroup, kind, dataset.DefinitionOptions{})
		if err := env.InstallCRD(ctx, c.hostConfig, definition); err != nil {
			return nil, fmt.Errorf("installing %s on the host: %w", kind, err)
		}
		definition = dataset.Definition(dataset.AnnexedGroup, kind, dataset.DefinitionOptions{})
		if err := env.InstallCRD(ctx, c.annexConfig, definition); err != nil {
			return nil, fmt.Errorf("installing %s in annex: %w", kind, err)
		}
	}
	return c, c.Annex.RegisterAPIService(ctx, dataset.AnnexedGroup, dataset.Version)
}

// startServers gives nothing to one API server or etcd that the other does not have.
func (c *Cluster) startServers(ctx context.Context) error {
	c.Progress("starting kube-apiserver, annex-apiserver and an etcd for each")
	var err error
	if c.Host, err = c.Env.StartHost(ctx, env.HostOptions{}); err != nil {
		return err
	}
	if c.Annex, err = c.Env.StartAnnex(ctx, env.AnnexOptions{Host: c.Host}); err != nil {
		return err
	}
	if c.hostConfig, err = c.Host.AdminConfig(); err != nil {
		return err
	}
	c.annexConfig, err = c.Annex.AdminConfig(0)
	return err
}

// HostProcesses are kube-apiserver and its etcd.
func (c *Cluster) HostProcesses() []*env.Process {
	return []*env.Process{c.Host.APIServers[0].Process, c.Host.Etcd.Process}
}

// AnnexProcesses are annex-apiserver and its etcd.
func (c *Cluster) AnnexProcesses() []*env.Process {
	return []*env.Process{c.Annex.Replicas[0].Process, c.Annex.Etcd.Process}
}

// Sides are the three ways, in the order of the constants.
func (c *Cluster) Sides() []Side {
	return []Side{
		{Name: SideHost, Config: c.hostConfig, Group: dataset.HostGroup, Processes: c.HostProcesses()},
		{Name: SideAnnex, Config: c.annexConfig, Group: dataset.AnnexedGroup, Processes: c.AnnexProcesses()},
		{Name: SideAggregated, Config: c.hostConfig, Group: dataset.AnnexedGroup, Processes: append(c.HostProcesses(), c.AnnexProcesses()...)},
	}
}

// Side returns one of Sides by its name.
func (c *Cluster) Side(name string) (Side, error) {
	for _, side := range c.Sides() {
		if side.Name == name {
			return side, nil
		}
	}
	return Side{}, fmt.Errorf("there is no side %q", name)
}
