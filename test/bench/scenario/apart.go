// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
	"github.com/kubeannex/annex/test/env"
)

const (
	// bootInterval is the pause between two questions to a server that starts, and so
	// the error of a time that is measured.
	bootInterval = 20 * time.Millisecond
	// bootTimeout bounds the start of a server.
	bootTimeout = 3 * time.Minute
	// heapInterval is the pause between two looks at a heap, and settledShare the
	// part of the first that the second has of a heap that has settled.
	heapInterval = time.Second
	settledShare = 0.995
	// smokeBoots is how often a side is measured in a smoke run.
	smokeBoots = 1
	// mostBoots is the same for other runs.
	mostBoots = 3
)

// bootRounds is how often scenarios are measured of which each round needs new
// processes. There is nothing to warm up but the files, which were just written.
func bootRounds(asked int, smoke bool) (measured, warmup int) {
	if smoke {
		return min(asked, smokeBoots), 0
	}
	return min(asked, mostBoots), 0
}

// apart is a cluster whose API servers are killed and started again, and which holds
// nothing but endpoints.
type apart struct {
	cluster *cluster.Cluster
	// empty is what each API server takes before there are objects, by the name of the side.
	empty map[string]memoryUse
}

// memoryUse is the memory of an API server and its etcd, in bytes.
type memoryUse struct {
	// resident is that of the API server before its garbage is collected.
	resident int64
	// live is the heap of the API server that is in use, after garbage collection.
	live int64
	// etcd is the resident memory of its etcd.
	etcd int64
}

// open starts a second cluster, measures it while it is empty, and fills it with count
// endpoints: the definitions of the main one must not change, as other scenarios need them.
func (a *apart) open(ctx context.Context, main *cluster.Cluster, count int) error {
	var err error
	a.cluster, err = cluster.Start(ctx, cluster.Options{
		Env: main.Env, Sizes: cluster.Sizes{Shape: main.Sizes.Shape},
		Kinds: []dataset.Kind{dataset.Endpoints}, Direct: true, Progress: main.Progress,
	})
	if err != nil {
		return fmt.Errorf("starting a second cluster: %w", err)
	}
	a.empty = map[string]memoryUse{}
	for _, side := range a.cluster.Sides() {
		if err := a.measureEmpty(ctx, side); err != nil {
			return fmt.Errorf("measuring the empty %s: %w", side.Name, err)
		}
	}
	a.cluster.Sizes.Endpoints = count
	return a.cluster.Fill(ctx)
}

func (a *apart) measureEmpty(ctx context.Context, side cluster.Side) (err error) {
	booted, err := a.boot(side)
	defer func() { err = errors.Join(err, booted.close()) }()
	if err != nil {
		return err
	}
	if err := booted.waitForCache(ctx, dataset.Version); err != nil {
		return err
	}
	a.empty[side.Name], err = booted.memory(ctx)
	return err
}

// settledHeap waits until the live heap of a server does not fall any more, and
// returns it: a server that is ready still has work to do, such as its OpenAPI.
func settledHeap(ctx context.Context, side cluster.Side) (live int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	err = wait.PollUntilContextCancel(ctx, heapInterval, true, func(ctx context.Context) (bool, error) {
		heap, err := measure.LiveHeap(ctx, side.Config)
		if err != nil {
			return false, err
		}
		settled := live > 0 && float64(heap.Live) > settledShare*float64(live)
		live = heap.Live
		return settled, nil
	})
	return live, err
}

// close ends all processes.
func (a *apart) close() error {
	if a.cluster == nil {
		return nil
	}
	return a.cluster.Stop()
}

// boot starts the API server of a side anew, its first process. Annex needs the
// host, but a host needs no annex: annex is paused meanwhile. The caller calls close
// also after an error.
func (a *apart) boot(side cluster.Side) (*booting, error) {
	b := &booting{side: side, sizes: a.cluster.Sizes}
	server, etcd := side.Processes[0], side.Processes[1]
	if annex := a.cluster.Annex.Replicas[0].Process; annex != server {
		if err := annex.Pause(); err != nil {
			return b, err
		}
		b.paused = annex
	}
	if err := server.Kill(); err != nil {
		return b, err
	}
	var err error
	if b.client, err = client.New(side.Config); err != nil {
		return b, err
	}
	if b.etcdBefore, err = measure.Processes(etcd.PID()); err != nil {
		return b, err
	}
	b.began = time.Now()
	return b, server.Start()
}

// booting is an API server from its start to the moment at which it has all objects.
type booting struct {
	side   cluster.Side
	sizes  cluster.Sizes
	client *client.Client
	began  time.Time
	// etcdBefore is what its etcd had used before.
	etcdBefore measure.Usage
	// paused is to be continued.
	paused *env.Process
}

func (b *booting) close() error {
	if b.client != nil {
		b.client.Close()
	}
	if b.paused == nil {
		return nil
	}
	return b.paused.Continue()
}

// took is how long the process runs, in seconds.
func (b *booting) took() float64 { return time.Since(b.began).Seconds() }

// waitForReady waits until /readyz is content. It returns when that was, in seconds
// after the start.
func (b *booting) waitForReady(ctx context.Context) (float64, error) {
	_, err := b.wait(ctx, b.side.Config.Host+"/readyz")
	return b.took(), err
}

// waitForCache waits until the server answers a LIST of one namespace from its
// cache, which it does once the cache holds all objects.
func (b *booting) waitForCache(ctx context.Context, version string) error {
	_, err := b.waitForList(ctx, version, b.sizes.InNamespace(0))
	return err
}

// waitForList waits until the server answers a LIST from its cache. It returns when
// the last byte came, in seconds after the start. An answer that is not what is
// selected is an error.
func (b *booting) waitForList(ctx context.Context, version string, selection dataset.Selection) (float64, error) {
	path := selection.Path(b.side.Group, version, dataset.Endpoints, url.Values{"resourceVersion": {"0"}})
	answer, err := b.wait(ctx, b.side.Config.Host+path)
	took := b.took()
	if err != nil {
		return 0, err
	}
	return took, answer.Expect(selection.Count(b.sizes.Endpoints))
}

// wait asks until there is an answer.
func (b *booting) wait(ctx context.Context, address string) (answer client.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	server := b.side.Processes[0]
	var last error
	err = wait.PollUntilContextCancel(ctx, bootInterval, true, func(ctx context.Context) (bool, error) {
		select {
		case <-server.Exited():
			return false, fmt.Errorf("%s has ended, see %s", server.Name(), server.LogFile())
		default:
		}
		answer, last = b.client.Get(ctx, address, false)
		return last == nil, nil
	})
	if err != nil {
		return answer, fmt.Errorf("waiting for %s: %w, last answer: %w", server.Name(), err, last)
	}
	return answer, nil
}

// used returns the CPU seconds of the API server and of its etcd since the start,
// and the highest resident memory of the API server, in bytes.
func (b *booting) used() (cpu, peak float64, err error) {
	server, err := measure.Processes(b.side.Processes[0].PID())
	if err != nil {
		return 0, 0, err
	}
	etcd, err := measure.Processes(b.side.Processes[1].PID())
	if err != nil {
		return 0, 0, err
	}
	return (server.CPU + etcd.Since(b.etcdBefore).CPU).Seconds(), float64(server.Peak), nil
}

// memory measures the server as it is, and then the heap once it has settled.
func (b *booting) memory(ctx context.Context) (memoryUse, error) {
	server, err := measure.Processes(b.side.Processes[0].PID())
	if err != nil {
		return memoryUse{}, err
	}
	live, err := settledHeap(ctx, b.side)
	if err != nil {
		return memoryUse{}, err
	}
	etcd, err := measure.Processes(b.side.Processes[1].PID())
	if err != nil {
		return memoryUse{}, err
	}
	return memoryUse{resident: server.Resident, live: live, etcd: etcd.Resident}, nil
}
