// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

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
	// Kinds are installed and filled. None means all.
	Kinds []dataset.Kind
	// Direct leaves annex's group out of the host: there is no SideAggregated, and the
	// host does nothing for annex but to say who may do what.
	Direct bool
	// Progress is told what happens, one line each. Nil means nobody is.
	Progress func(format string, args ...any)
}

// Cluster is a running host and annex. Its processes end with its Env.
type Cluster struct {
	Options

	Host  *env.Host
	Annex *env.Annex
	// Idle is how many cores the processes of a side keep busy while nobody asks for
	// anything, by the name of the side. MeasureIdle measures it.
	Idle map[string]float64

	// hostConfig and annexConfig are those of an administrator, for what is not measured.
	hostConfig, annexConfig *rest.Config
	// users are those of the users whose requests are measured, by the name of the side.
	users map[string]*rest.Config
}

// Start starts all processes, installs the kinds on both sides and sends annex's
// group of the host to annex. The kinds have no objects yet: call Fill.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.Progress == nil {
		options.Progress = func(string, ...any) {}
	}
	if len(options.Kinds) == 0 {
		options.Kinds = dataset.Kinds()
	}
	c := &Cluster{Options: options}
	if err := c.startServers(ctx); err != nil {
		return nil, err
	}
	// Indexes are chosen when the definitions are opened.
	if err := OpenGroup(ctx, c.annexConfig, dataset.AnnexedGroup); err != nil {
		return nil, err
	}
	for _, kind := range c.Kinds {
		definition := dataset.Definition(dataset.HostGroup, kind, dataset.DefinitionOptions{})
		if err := env.InstallCRD(ctx, c.hostConfig, definition); err != nil {
			return nil, fmt.Errorf("installing %s on the host: %w", kind, err)
		}
		definition = dataset.Definition(dataset.AnnexedGroup, kind, dataset.DefinitionOptions{})
		if err := env.InstallCRD(ctx, c.annexConfig, definition); err != nil {
			return nil, fmt.Errorf("installing %s in annex: %w", kind, err)
		}
	}
	if c.Direct {
		return c, nil
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
	if c.annexConfig, err = c.Annex.AdminConfig(0); err != nil {
		return err
	}
	return c.grantUsers(ctx)
}

// usersName is the name of the rights of all users whose requests are measured.
const usersName = "annex-bench"

// userName is who sends the requests that are measured on a side. Each side has a user of its
// own: annex remembers for some seconds what the host has said about a user and a request,
// so that one for all would make it cheap on the side that comes second.
func userName(side string) string { return usersName + "-" + side }

// grantUsers lets ordinary users do everything. An administrator of the group
// system:masters is exempt from priority and fairness on both sides, and annex would
// not have to ask the host about him, as it has to about everybody else.
func (c *Cluster) grantUsers(ctx context.Context) error {
	all, names := []string{rbacv1.VerbAll}, []string{SideHost, SideAnnex, SideAggregated}
	rights := Rights{
		Name:  usersName,
		Rules: []rbacv1.PolicyRule{{APIGroups: all, Resources: all, Verbs: all}, {NonResourceURLs: all, Verbs: all}},
	}
	for _, name := range names {
		rights.Users = append(rights.Users, userName(name))
	}
	if err := c.Grant(ctx, rights); err != nil {
		return err
	}
	c.users = map[string]*rest.Config{}
	for _, name := range names {
		address := c.hostConfig.Host
		if name == SideAnnex {
			address = c.annexConfig.Host
		}
		var err error
		if c.users[name], err = c.configAt(address, userName(name)); err != nil {
			return err
		}
	}
	return nil
}

// configAt returns a configuration of a user with a new certificate. All servers trust the
// host's authority for those of clients.
func (c *Cluster) configAt(address, user string, groups ...string) (*rest.Config, error) {
	config, err := c.Host.ConfigFor(0, user, groups...)
	if err != nil {
		return nil, err
	}
	config.Host = address
	return config, nil
}

// Renewed returns the side with a new certificate of its user. To a server that remembers who
// may do what he is somebody else: the certificate's fingerprint is part of who he is, by
// apiserver/pkg/authentication/request/x509 (CredentialIDKey).
func (c *Cluster) Renewed(side Side) (Side, error) {
	var err error
	side.Config, err = c.configAt(side.Config.Host, userName(side.Name))
	return side, err
}

// ConfigAs returns a configuration of another user on a side, with a new certificate.
func (c *Cluster) ConfigAs(side Side, user string, groups ...string) (*rest.Config, error) {
	return c.configAt(side.Config.Host, user, groups...)
}

// HostProcesses are kube-apiserver and its etcd.
func (c *Cluster) HostProcesses() []*env.Process {
	return []*env.Process{c.Host.APIServers[0].Process, c.Host.Etcd.Process}
}

// AnnexProcesses are annex-apiserver and its etcd.
func (c *Cluster) AnnexProcesses() []*env.Process {
	return []*env.Process{c.Annex.Replicas[0].Process, c.Annex.Etcd.Process}
}

// Stop kills all processes and keeps their data.
func (c *Cluster) Stop() error {
	var errs []error
	for _, process := range append(c.AnnexProcesses(), c.HostProcesses()...) {
		errs = append(errs, process.Kill())
	}
	return errors.Join(errs...)
}

// Sides are the three ways, in the order of the constants, or the first two when
// the cluster is Direct.
func (c *Cluster) Sides() []Side {
	sides := []Side{
		{Name: SideHost, Config: c.users[SideHost], Group: dataset.HostGroup, Processes: c.HostProcesses()},
		{
			Name: SideAnnex, Config: c.users[SideAnnex], Group: dataset.AnnexedGroup, Processes: c.AnnexProcesses(),
			Reviewers: c.HostProcesses()[:1],
		},
	}
	if c.Direct {
		return sides
	}
	return append(sides, Side{
		Name: SideAggregated, Config: c.users[SideAggregated], Group: dataset.AnnexedGroup,
		Processes: append(c.HostProcesses(), c.AnnexProcesses()...),
	})
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

// Detach makes the host forget annex's group, and returns the same cluster as a Direct one.
func (c *Cluster) Detach(ctx context.Context) (*Cluster, error) {
	client, err := aggregatorclient.NewForConfig(c.hostConfig)
	if err != nil {
		return nil, fmt.Errorf("making a client of the host: %w", err)
	}
	name := dataset.Version + "." + dataset.AnnexedGroup
	if err := client.ApiregistrationV1().APIServices().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return nil, fmt.Errorf("deleting the APIService %s: %w", name, err)
	}
	direct := *c
	direct.Direct = true
	return &direct, nil
}
