// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

const (
	// Timeout is a fair bound for one test.
	Timeout = 3 * time.Minute
	// pollInterval is the pause between two looks at a condition that cannot be watched.
	pollInterval = 50 * time.Millisecond
)

// Options says what a cluster consists of. The zero value is one process of each.
type Options struct {
	// Name tells the annexes of one host apart. Default "annex".
	Name string
	// Host is shared with another cluster. Nil starts one.
	Host *env.Host
	// APIServers, Replicas and Controllers are the numbers of processes. Default 1.
	APIServers, Replicas, Controllers int
	// AnnexEtcd and AnnexArgs are passed on.
	AnnexEtcd env.EtcdOptions
	AnnexArgs []string
	// ControllerArgs are passed on.
	ControllerArgs []string
}

// Cluster is a host with an annex and its controller.
type Cluster struct {
	Env        *env.Env
	Host       *env.Host
	Annex      *env.Annex
	Controller *env.Controller
	// Groups is for AnnexedGroups. It reaches whichever replica of annex accepts the connection.
	Groups annexclient.Interface
}

// Start starts a cluster and waits until it serves.
func Start(ctx context.Context, e *env.Env, options Options) (*Cluster, error) {
	if options.Name == "" {
		options.Name = "annex"
	}
	c := &Cluster{Env: e, Host: options.Host}
	var err error
	if c.Host == nil {
		if c.Host, err = e.StartHost(ctx, env.HostOptions{APIServers: options.APIServers}); err != nil {
			return nil, err
		}
	}
	c.Annex, err = e.StartAnnex(ctx, env.AnnexOptions{
		Name: options.Name, Host: c.Host, Replicas: options.Replicas, Etcd: options.AnnexEtcd, Args: options.AnnexArgs,
	})
	if err != nil {
		return nil, err
	}
	if options.Host == nil {
		if err := c.Annex.RegisterAPIService(ctx, kubeannex.GroupName, "v1alpha1"); err != nil {
			return nil, err
		}
	}
	c.Controller, err = e.StartController(ctx, env.ControllerOptions{
		Name: options.Name + "-controller", Host: c.Host, Annex: c.Annex, Replicas: options.Controllers, Args: options.ControllerArgs,
	})
	if err != nil {
		return nil, err
	}
	config, err := c.Annex.BalancedConfig("admin", "system:masters")
	if err != nil {
		return nil, err
	}
	c.Groups, err = annexclient.NewForConfig(config)
	return c, err
}

// HostConfig returns a client configuration of an administrator at the
// kube-apiserver with the given index.
func (c *Cluster) HostConfig(tb testing.TB, server int) *rest.Config {
	tb.Helper()
	config, err := c.Host.ConfigFor(server, "admin", "system:masters")
	if err != nil {
		tb.Fatal(err)
	}
	return config
}

// HostKube returns a client of the host's own types at the first kube-apiserver.
func (c *Cluster) HostKube(tb testing.TB) kubernetes.Interface {
	tb.Helper()
	client, err := kubernetes.NewForConfig(c.HostConfig(tb, 0))
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// AnnexConfig returns a client configuration of an administrator at the replica
// with the given index, past kube-apiserver.
func (c *Cluster) AnnexConfig(tb testing.TB, replica int) *rest.Config {
	tb.Helper()
	config, err := c.Annex.AdminConfig(replica)
	if err != nil {
		tb.Fatal(err)
	}
	return config
}

// processes are all parts of the cluster in the order of their dependencies.
func (c *Cluster) processes() []*env.Process {
	processes := []*env.Process{c.Host.Etcd.Process, c.Annex.Etcd.Process}
	for _, server := range c.Host.APIServers {
		processes = append(processes, server.Process)
	}
	for _, server := range c.Annex.Replicas {
		processes = append(processes, server.Process)
	}
	return append(processes, c.Controller.Replicas...)
}

// Heal starts what does not run and waits until everything serves. A test that
// ends processes calls it at its end, also when it fails.
func (c *Cluster) Heal(ctx context.Context) error {
	for _, process := range c.processes() {
		select {
		case <-process.Exited():
			if err := process.Start(); err != nil {
				return err
			}
		default:
		}
	}
	for _, process := range c.processes() {
		if err := process.WaitReady(ctx); err != nil {
			return fmt.Errorf("healing the cluster: %w", err)
		}
	}
	return nil
}

// HealAfter calls Heal at the end of the test.
func (c *Cluster) HealAfter(tb testing.TB) {
	tb.Helper()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
		defer cancel()
		if err := c.Heal(ctx); err != nil {
			tb.Error(err)
		}
	})
}

// Context returns the context of the test, bounded by Timeout.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Timeout)
	tb.Cleanup(cancel)
	return ctx
}

// Leader returns the controller that leads: the one that told last of having got the lease.
func (c *Cluster) Leader(tb testing.TB) *env.Process {
	tb.Helper()
	var leader *env.Process
	newest := ""
	for _, process := range c.Controller.Replicas {
		for line := range strings.Lines(process.Log()) {
			// The line begins with letter, date and time.
			if strings.Contains(line, "uccessfully acquired lease") && line[1:] > newest {
				leader, newest = process, line[1:]
			}
		}
	}
	if leader == nil {
		tb.Fatal("no controller has told that it leads")
	}
	return leader
}
