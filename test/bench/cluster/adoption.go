// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/env"
)

const (
	// requestLifetime is what the controller is told of how long a request at the
	// host lives. Nobody sends it longer ones here, and with the minute that
	// kube-apiserver allows, every purge would begin a minute after the adoption.
	requestLifetime = 3 * time.Second
	// defragmentTimeout bounds the compaction and the defragmentation of an etcd.
	defragmentTimeout = 2 * time.Minute
)

// Adoptable is a cluster of its own whose host holds endpoints that annex can
// adopt: group HostGroup. It is started beside the cluster that is measured
// otherwise, because an adoption cannot be repeated.
type Adoptable struct {
	// Host has one kube-apiserver with its etcd.
	Host *env.Host
	// Annex is nil until StartAnnex.
	Annex *env.Annex
	// HostConfig is that of an administrator of the host.
	HostConfig *rest.Config
	// AnnexConfig is that of an administrator of annex at its own address.
	AnnexConfig *rest.Config
	// Groups is for AnnexedGroups.
	Groups annexclient.Interface
	// Sizes say what the host holds: endpoints only.
	Sizes Sizes

	env      *env.Env
	dir      string
	progress func(format string, args ...any)
}

// StartAdoptable starts the host and fills it with the first count endpoints. Call
// Close in any case, also after an error.
func (c *Cluster) StartAdoptable(ctx context.Context, count int) (*Adoptable, error) {
	a := &Adoptable{Sizes: Sizes{Shape: c.Sizes.Shape, Endpoints: count}, progress: c.Progress}
	var err error
	// The run removes the folder of its first cluster, or keeps it with all logs.
	if a.dir, err = os.MkdirTemp(filepath.Dir(c.Host.APIServers[0].LogFile()), "adoption-"); err != nil {
		return a, fmt.Errorf("creating a folder: %w", err)
	}
	if a.env, err = env.New(a.dir); err != nil {
		return a, err
	}
	if a.Host, err = a.env.StartHost(ctx, env.HostOptions{}); err != nil {
		return a, err
	}
	if a.HostConfig, err = a.Host.AdminConfig(); err != nil {
		return a, err
	}
	definition := dataset.Definition(dataset.HostGroup, dataset.Endpoints, dataset.DefinitionOptions{})
	if err := env.InstallCRD(ctx, a.HostConfig, definition); err != nil {
		return a, fmt.Errorf("installing %s on the host: %w", dataset.Endpoints, err)
	}
	if err := a.fill(ctx); err != nil {
		return a, fmt.Errorf("filling the host: %w", err)
	}
	return a, a.RestartHost(ctx)
}

// fill fills the host in the way of Cluster.Fill.
func (a *Adoptable) fill(ctx context.Context) error {
	start := time.Now()
	c := &Cluster{Options: Options{Env: a.env, Sizes: a.Sizes, Progress: a.progress}, Host: a.Host, hostConfig: a.HostConfig}
	if err := a.Sizes.CreateNamespaces(ctx, a.HostConfig); err != nil {
		return err
	}
	etcd, err := connect(ctx, a.Host.Etcd.URL)
	if err != nil {
		return err
	}
	defer etcd.Close() //nolint:errcheck // every write was answered
	if err := c.fillHost(ctx, etcd, dataset.Endpoints); err != nil {
		return err
	}
	a.progress("filled: %d %s on the host of a second cluster in %.1f s", a.Sizes.Endpoints, dataset.Endpoints, time.Since(start).Seconds())
	return nil
}

// Side is a way to the endpoints: through kube-apiserver, whoever serves them.
func (a *Adoptable) Side(name string) Side {
	return Side{
		Name: name, Config: a.HostConfig, Group: dataset.HostGroup,
		Processes: []*env.Process{a.Host.APIServers[0].Process, a.Host.Etcd.Process},
	}
}

// RestartHost kills kube-apiserver, starts it again and waits until it has the
// endpoints, or the way to annex, again. The wait reads a small part of the
// endpoints: what a LIST of all leaves behind would count as the server's memory.
func (a *Adoptable) RestartHost(ctx context.Context) error {
	server := a.Host.APIServers[0].Process
	if err := server.Kill(); err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	if err := server.WaitReady(ctx); err != nil {
		return err
	}
	gv := schema.GroupVersion{Group: dataset.HostGroup, Version: dataset.Version}
	if err := env.WaitForGroupVersion(ctx, a.HostConfig, gv); err != nil {
		return err
	}
	return a.waitForCache(ctx)
}

func (a *Adoptable) waitForCache(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	with, err := client.New(a.HostConfig)
	if err != nil {
		return err
	}
	defer with.Close()
	part := a.Sizes.OfApp(0)
	address := a.Side("").URL(dataset.Endpoints, part, url.Values{"resourceVersion": {"0"}})
	var last error
	err = wait.PollUntilContextCancel(ctx, warmInterval, true, func(ctx context.Context) (bool, error) {
		var answer client.Answer
		if answer, last = with.Get(ctx, address, false); last == nil {
			last = answer.Expect(part.Count(a.Sizes.Endpoints))
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the %s of a second cluster: %w, last answer: %w", dataset.Endpoints, err, last)
	}
	return nil
}

// StartAnnex starts annex with its etcd and its controller beside the host.
func (a *Adoptable) StartAnnex(ctx context.Context) error {
	var err error
	if a.Annex, err = a.env.StartAnnex(ctx, env.AnnexOptions{Host: a.Host}); err != nil {
		return err
	}
	if a.AnnexConfig, err = a.Annex.AdminConfig(0); err != nil {
		return err
	}
	if a.Groups, err = annexclient.NewForConfig(a.AnnexConfig); err != nil {
		return fmt.Errorf("making a client of annex: %w", err)
	}
	if err := a.Annex.RegisterAPIService(ctx, kubeannex.GroupName, v1alpha1.SchemeGroupVersion.Version); err != nil {
		return err
	}
	_, err = a.env.StartController(ctx, env.ControllerOptions{
		Host: a.Host, Annex: a.Annex, Args: []string{"--host-request-timeout=" + requestLifetime.String()},
	})
	return err
}

// Adopt asks annex to adopt the group, with the indexes of OpenGroup.
func (a *Adoptable) Adopt(ctx context.Context) error {
	object := &v1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: dataset.HostGroup}}
	object.Spec.Resources = []v1alpha1.AnnexedResourceSpec{indexes(dataset.Endpoints)}
	if _, err := a.Groups.KubeannexV1alpha1().AnnexedGroups().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the AnnexedGroup %s: %w", object.Name, err)
	}
	return nil
}

// Close ends all processes and removes their data. Their logs stay.
func (a *Adoptable) Close() error {
	if a.env == nil {
		return nil
	}
	err := a.env.Close()
	entries, readErr := os.ReadDir(a.dir)
	err = errors.Join(err, readErr)
	for _, entry := range entries {
		if entry.IsDir() {
			err = errors.Join(err, os.RemoveAll(filepath.Join(a.dir, entry.Name())))
		}
	}
	return err
}

// Database is what an etcd holds.
type Database struct {
	// Bytes is the size of the file after compaction and defragmentation.
	Bytes int64
	// Endpoints is the number of endpoints.
	Endpoints int64
}

// MeasureDatabase removes old revisions and free pages from an etcd, as its
// operator would, so that sizes can be compared, and measures it.
func MeasureDatabase(ctx context.Context, etcd *env.Etcd) (Database, error) {
	ctx, cancel := context.WithTimeout(ctx, defragmentTimeout)
	defer cancel()
	with, err := connect(ctx, etcd.URL)
	if err != nil {
		return Database{}, err
	}
	defer with.Close() //nolint:errcheck // nothing is lost
	found, err := with.Get(ctx, etcdPrefix(dataset.HostGroup, dataset.Endpoints), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return Database{}, fmt.Errorf("counting keys in an etcd: %w", err)
	}
	if _, err := with.Compact(ctx, found.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return Database{}, fmt.Errorf("compacting an etcd: %w", err)
	}
	if _, err := with.Defragment(ctx, etcd.URL); err != nil {
		return Database{}, fmt.Errorf("defragmenting an etcd: %w", err)
	}
	status, err := with.Status(ctx, etcd.URL)
	if err != nil {
		return Database{}, fmt.Errorf("reading the status of an etcd: %w", err)
	}
	return Database{Bytes: status.DbSize, Endpoints: found.Count}, nil
}
