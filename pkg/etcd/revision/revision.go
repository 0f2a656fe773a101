// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package revision checks that an etcd is far enough ahead of every other store that a client may come from.
//
// Resource versions are etcd revisions. When an API group moves from one etcd to another, clients arrive with resource
// versions of the old one. Etcd answers a watch from a revision that it has not reached yet with silence: the client
// misses every event until then. So the new etcd must start above a floor that no old one reaches.
package revision

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
)

// dialTimeout bounds a probe of an etcd whose context has no deadline of its own.
const dialTimeout = 20 * time.Second

// Result is what a check has found at one etcd.
type Result struct {
	// Servers are the endpoints of the etcd.
	Servers []string
	// Current is its revision at the time of the check.
	Current int64
	// Floor is the lowest revision that is good enough.
	Floor int64
}

// Met reports whether the etcd is at or above the floor. Revisions never go back, so a floor once met stays met.
func (r Result) Met() bool {
	return r.Current >= r.Floor
}

// Err returns nil if the floor is met, and otherwise one line for the operator: both numbers and the remedies.
func (r Result) Err() error {
	if r.Met() {
		return nil
	}
	return fmt.Errorf("etcd %s is at revision %d, below the floor %d, so watches of clients that come from another store could stay silent: "+
		"restore its snapshot with etcdutl snapshot restore --bump-revision %d --mark-compacted, or accept the risk with --etcd-revision-floor=0",
		strings.Join(r.Servers, ","), r.Current, r.Floor, r.Floor)
}

// Check asks the etcd behind client for its revision. The read is linearizable: it fails when the etcd has no
// quorum. prefix is the --etcd-prefix; the key that is read, <prefix>/health, need not exist (the API server's own
// health check reads the same one).
func Check(ctx context.Context, client *clientv3.Client, prefix string, floor int64) (Result, error) {
	result := Result{Servers: client.Endpoints(), Floor: floor}
	response, err := client.Get(ctx, path.Join("/", prefix, "health"), clientv3.WithCountOnly())
	if err != nil {
		return result, fmt.Errorf("reading the revision of etcd %s: %w", strings.Join(result.Servers, ","), err)
	}
	result.Current = response.Header.GetRevision()
	return result, nil
}

// CheckTransport connects to an etcd as the API server's storage does, checks it and disconnects.
func CheckTransport(ctx context.Context, config storagebackend.TransportConfig, prefix string, floor int64) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	client, err := etcdclient.New(ctx, config)
	if err != nil {
		return Result{Servers: config.ServerList, Floor: floor}, err
	}
	result, err := Check(ctx, client, prefix, floor)
	_ = client.Close()
	return result, err
}
