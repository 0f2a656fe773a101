// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testetcd runs etcd inside a test process.
package testetcd

import (
	"net/url"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"

	"github.com/kubeannex/annex/test/env/ports"
)

// Run starts an etcd that ends with the test. Its data is not synced to disk. It
// elects itself leader ten times as fast as usual: a start takes a tenth of a
// second. adjust may be nil.
//
// The server and the client are upstream's, but for the ports: upstream takes those of
// the kernel's choice, so two tests that start an etcd at once can get the same
// (k8s.io/apiserver pkg/storage/etcd3/testserver, NewTestConfig).
func Run(tb testing.TB, adjust func(*embed.Config)) *kubernetes.Client {
	tb.Helper()
	config := testserver.NewTestConfig(tb)
	client := []url.URL{{Scheme: "http", Host: ports.FreeAddress(tb)}}
	peer := []url.URL{{Scheme: "http", Host: ports.FreeAddress(tb)}}
	config.ListenClientUrls, config.AdvertiseClientUrls = client, client
	config.ListenPeerUrls, config.AdvertisePeerUrls = peer, peer
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.TickMs, config.ElectionMs = 10, 100
	if adjust != nil {
		adjust(config)
	}
	etcd := testserver.RunEtcd(tb, config)
	tb.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			tb.Errorf("closing etcd client: %v", err)
		}
	})
	return etcd
}
