// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/env"
)

const (
	// pageBytes is about how much is read from etcd at a time.
	pageBytes = 8 << 20
	// putters is how many objects are written at a time: an etcd shares a sync of the disk among them.
	putters = 128
	// dialTimeout bounds the connection to an etcd on loopback.
	dialTimeout = 30 * time.Second
)

// Fill creates all objects on the host, and in annex's etcd what the host's etcd then holds
// with nothing changed but the group: the objects of both sides are the same byte for
// byte, UIDs and managedFields included. Most objects are written to both etcds
// directly, see forge. Both API servers are restarted at the end.
func (c *Cluster) Fill(ctx context.Context) error {
	if err := c.Sizes.CreateNamespaces(ctx, c.hostConfig); err != nil {
		return err
	}
	host, err := connect(ctx, c.Host.Etcd.URL)
	if err != nil {
		return err
	}
	defer host.Close() //nolint:errcheck // every write was answered
	annex, err := connect(ctx, c.Annex.Etcd.URL)
	if err != nil {
		return err
	}
	defer annex.Close() //nolint:errcheck // every write was answered
	for _, kind := range c.Kinds {
		if err := c.createSamples(ctx, kind); err != nil {
			return fmt.Errorf("creating %s on the host: %w", kind, err)
		}
	}
	// They would follow every change, which takes longer than to write it.
	if err := c.killServers(); err != nil {
		return err
	}
	for _, kind := range c.Kinds {
		start := time.Now()
		if err := c.copyToAnnex(ctx, host, annex, kind); err != nil {
			return fmt.Errorf("copying %s to annex: %w", kind, err)
		}
		if err := c.forge(ctx, kind, host, annex); err != nil {
			return fmt.Errorf("filling both sides with %s: %w", kind, err)
		}
		c.Progress("filled: %d %s of %d bytes on both sides in %.1f s", c.Sizes.Count(kind), kind, kind.Bytes(), time.Since(start).Seconds())
	}
	return c.restart(ctx)
}

// servers are kube-apiserver and annex-apiserver.
func (c *Cluster) servers() []*env.Process {
	return []*env.Process{c.Host.APIServers[0].Process, c.Annex.Replicas[0].Process}
}

// killServers kills both API servers: one that is asked to stop waits a minute for
// watches to end.
func (c *Cluster) killServers() error {
	for _, server := range slices.Backward(c.servers()) {
		if err := server.Kill(); err != nil {
			return err
		}
	}
	return nil
}

// restart starts both API servers again after killServers. So both read their caches
// from an etcd that is full: one that has followed every change has its objects
// elsewhere in memory.
func (c *Cluster) restart(ctx context.Context) error {
	for _, server := range c.servers() {
		if err := server.Start(); err != nil {
			return err
		}
		if err := server.WaitReady(ctx); err != nil {
			return err
		}
	}
	groups := []string{dataset.HostGroup, dataset.AnnexedGroup}
	if c.Direct {
		groups = groups[:1]
	}
	for _, group := range groups {
		gv := schema.GroupVersion{Group: group, Version: dataset.Version}
		if err := env.WaitForGroupVersion(ctx, c.hostConfig, gv); err != nil {
			return err
		}
	}
	c.Progress("kube-apiserver and annex-apiserver are restarted")
	return nil
}

// fillHost creates all objects of a kind on the host.
func (c *Cluster) fillHost(ctx context.Context, host *clientv3.Client, kind dataset.Kind) error {
	if err := c.createSamples(ctx, kind); err != nil {
		return err
	}
	return c.forge(ctx, kind, host, nil)
}

// samples is how many objects of a kind are created by requests.
func (c *Cluster) samples(kind dataset.Kind) int {
	return min(c.Sizes.Count(kind), forgeSamples(kind))
}

func (c *Cluster) createSamples(ctx context.Context, kind dataset.Kind) error {
	return c.Sizes.Fill(ctx, c.hostConfig, dataset.HostGroup, kind, c.samples(kind), nil)
}

// copyToAnnex copies the objects that were created by requests.
func (c *Cluster) copyToAnnex(ctx context.Context, from, to *clientv3.Client, kind dataset.Kind) error {
	copied := 0
	err := pages(ctx, from, kind, func(page *clientv3.GetResponse) error {
		puts, ctx := errgroup.WithContext(ctx)
		puts.SetLimit(putters)
		for _, pair := range page.Kvs {
			puts.Go(func() error { return putAnnexed(ctx, to, string(pair.Key), pair.Value) })
		}
		copied += len(page.Kvs)
		return puts.Wait()
	})
	if err == nil && copied != c.samples(kind) {
		err = fmt.Errorf("the host's etcd has %d of them, %d were created", copied, c.samples(kind))
	}
	return err
}

// putAnnexed writes what the host has of an object with nothing changed but the group.
func putAnnexed(ctx context.Context, annex *clientv3.Client, key string, value []byte) error {
	key = strings.Replace(key, dataset.HostGroup, dataset.AnnexedGroup, 1)
	return put(ctx, annex, key, bytes.ReplaceAll(value, []byte(`"`+dataset.HostGroup+`/`), []byte(`"`+dataset.AnnexedGroup+`/`)))
}

// checkCount compares how many objects an etcd has with how many were written.
func (c *Cluster) checkCount(ctx context.Context, with *clientv3.Client, group string, kind dataset.Kind) error {
	found, err := with.Get(ctx, etcdPrefix(group, kind), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("counting keys in an etcd: %w", err)
	}
	if wanted := c.Sizes.Count(kind); found.Count != int64(wanted) {
		return fmt.Errorf("there are %d of group %s, wanted are %d", found.Count, group, wanted)
	}
	return nil
}

// pages reads all objects of a kind of the host.
func pages(ctx context.Context, from *clientv3.Client, kind dataset.Kind, each func(*clientv3.GetResponse) error) error {
	next := etcdPrefix(dataset.HostGroup, kind)
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(next))
	limit := clientv3.WithLimit(int64(max(1, pageBytes/kind.Bytes())))
	for {
		page, err := from.Get(ctx, next, end, limit)
		if err != nil {
			return fmt.Errorf("reading an etcd: %w", err)
		}
		if err := each(page); err != nil || !page.More {
			return err
		}
		next = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

func put(ctx context.Context, client *clientv3.Client, key string, value []byte) error {
	if _, err := client.Put(ctx, key, string(value)); err != nil {
		return fmt.Errorf("writing an etcd: %w", err)
	}
	return nil
}

func connect(ctx context.Context, url string) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: dialTimeout, Context: ctx})
	if err != nil {
		return nil, fmt.Errorf("connecting to an etcd: %w", err)
	}
	return client, nil
}

// etcdPrefix is where an API server with default settings keeps a kind.
func etcdPrefix(group string, kind dataset.Kind) string {
	return "/registry/" + group + "/" + kind.Resource() + "/"
}
