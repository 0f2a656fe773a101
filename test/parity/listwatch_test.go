// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"testing"

	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/listwatch"
)

// TestListWatch sends the requests of test/integration/listwatch to a real
// kube-apiserver that serves the same custom resource. What annex has to answer
// there is what kube-apiserver has to answer here, by the same rules; only who
// answers cannot be seen from outside.
func TestListWatch(t *testing.T) {
	e := env.ForTest(t)
	ctx, cancel := context.WithTimeout(t.Context(), env.StartTimeout)
	defer cancel()
	var host *env.Host
	start := func(ctx context.Context) (*listwatch.Running, error) {
		var err error
		if host == nil {
			host, err = startListWatchHost(ctx, e)
		} else {
			err = host.APIServers[0].Restart(ctx)
		}
		if err != nil {
			return nil, err
		}
		config, err := host.AdminConfig()
		if err != nil {
			return nil, err
		}
		config.QPS = -1
		stop := func() error { return host.APIServers[0].Stop(context.WithoutCancel(ctx)) }
		return &listwatch.Running{Config: config, Etcd: []string{host.Etcd.URL}, Stop: stop}, nil
	}
	world, err := listwatch.NewWorld(ctx, start, listwatch.Variant{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := world.Close(); err != nil {
			t.Error(err)
		}
	}()
	t.Run("GET", func(t *testing.T) { listwatch.CheckGet(t, world) })
	t.Run("LIST", func(t *testing.T) { listwatch.CheckList(t, world) })
	t.Run("WATCH", func(t *testing.T) { listwatch.CheckWatch(t, world) })
	t.Run("field selectors", func(t *testing.T) { listwatch.CheckFieldSelectors(t, world) })
	t.Run("list metadata", func(t *testing.T) { listwatch.CheckListMetadata(t, world) })
	t.Run("pages", func(t *testing.T) { listwatch.CheckPages(t, world) })
	t.Run("expired token", func(t *testing.T) { listwatch.CheckExpiredToken(t, world) })
	t.Run("malformed", func(t *testing.T) { listwatch.CheckMalformed(t, world) })
}

// startListWatchHost starts a cluster with the namespaces of the history.
func startListWatchHost(ctx context.Context, e *env.Env) (*env.Host, error) {
	host, err := e.StartHost(ctx, env.HostOptions{})
	if err != nil {
		return nil, err
	}
	config, err := host.AdminConfig()
	if err != nil {
		return nil, err
	}
	for _, namespace := range []string{"a", "b"} {
		if err := env.EnsureNamespace(ctx, config, namespace); err != nil {
			return nil, err
		}
	}
	return host, nil
}
