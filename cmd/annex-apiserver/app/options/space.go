// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"

	"github.com/kubeannex/annex/pkg/apiserver"
	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
	"github.com/kubeannex/annex/pkg/etcd/space"
)

// SpaceMonitor returns a monitor of all etcds of a server, and what closes its connections. The
// embedded etcd must have been started.
func (o CompletedOptions) SpaceMonitor(ctx context.Context, config *apiserver.Config) (monitor *space.Monitor, done func(), err error) {
	locations, err := o.Etcd.locations(&config.GenericConfig.Config)
	if err != nil {
		return nil, nil, err
	}
	var watched []space.Location
	done = func() {
		for _, location := range watched {
			location.Client.Close() //nolint:errcheck // nothing is lost with it
		}
	}
	for i, transport := range locations.transports() {
		client, err := etcdclient.New(ctx, transport)
		if err != nil && i == 0 {
			return nil, nil, err
		}
		if err != nil {
			continue // CheckEtcd has told of an override that cannot be used
		}
		location := space.Location{Client: client}
		if i == 0 && o.Etcd.isEmbedded {
			limits := o.Etcd.embeddedLimits()
			location.Limits = &limits
		}
		watched = append(watched, location)
	}
	return space.NewMonitor(watched...), done, nil
}
