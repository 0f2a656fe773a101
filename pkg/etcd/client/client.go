// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client connects to an etcd as the storage of an API server does.
package client

import (
	"context"
	"fmt"
	"net"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// New returns a client for the given servers; the caller closes it. It reads
// the transport configuration as k8s.io/apiserver
// pkg/storage/storagebackend/factory does. It does not wait for a connection:
// only unreadable certificates are found here.
func New(ctx context.Context, config storagebackend.TransportConfig) (*clientv3.Client, error) {
	client, err := dial(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd %s: %w", strings.Join(config.ServerList, ","), err)
	}
	return client, nil
}

func dial(ctx context.Context, config storagebackend.TransportConfig) (*clientv3.Client, error) {
	clientConfig := clientv3.Config{
		Context:   ctx,
		Endpoints: config.ServerList,
		Logger:    zap.NewNop(),
	}
	if config.CertFile != "" || config.KeyFile != "" || config.TrustedCAFile != "" {
		info := transport.TLSInfo{CertFile: config.CertFile, KeyFile: config.KeyFile, TrustedCAFile: config.TrustedCAFile}
		tlsConfig, err := info.ClientConfig()
		if err != nil {
			return nil, err
		}
		clientConfig.TLS = tlsConfig
	}
	if config.EgressLookup != nil {
		dial, err := config.EgressLookup(egressselector.Etcd.AsNetworkContext())
		if err != nil {
			return nil, err
		}
		if dial != nil {
			clientConfig.DialOptions = append(clientConfig.DialOptions,
				grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }))
		}
	}
	return clientv3.New(clientConfig)
}
