// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
)

// statusTimeout bounds the question for the size of one etcd. It is asked for while writes are held back.
const statusTimeout = 500 * time.Millisecond

// Space is what is known of the etcds that store some resources.
type Space struct {
	// Revision is the lowest present revision.
	Revision int64
	// DatabaseBytes and QuotaBytes are of the etcd with the least space left. 0 means unknown.
	DatabaseBytes, QuotaBytes int64
}

// Space asks every etcd that stores one of the resources. Only the revision must
// be answered: it is a linearizable read. An error is an API status error.
func (s *Stores) Space(ctx context.Context, resources ...schema.GroupResource) (Space, error) {
	var space Space
	seen := map[string]bool{}
	for _, resource := range resources {
		store, err := s.of(resource)
		if err != nil {
			return Space{}, storageError(err, resource, "")
		}
		servers := strings.Join(store.transport.ServerList, ",")
		if seen[servers] {
			continue
		}
		seen[servers] = true
		revision, err := store.storage.GetCurrentResourceVersion(ctx)
		if err != nil {
			return Space{}, storageError(err, resource, "")
		}
		if space.Revision == 0 || int64(revision) < space.Revision {
			space.Revision = int64(revision)
		}
		if size, quota, err := store.size(ctx); err == nil && space.hasMoreThan(quota-size) {
			space.DatabaseBytes, space.QuotaBytes = size, quota
		}
	}
	return space, nil
}

func (s Space) hasMoreThan(left int64) bool {
	return s.DatabaseBytes == 0 || s.QuotaBytes-s.DatabaseBytes > left
}

// size returns the size of the database and its quota at the member with the
// largest one. Members that do not answer at once are left out.
func (s *store) size(ctx context.Context) (size, quota int64, err error) {
	client, err := s.etcd(ctx)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var group sync.WaitGroup
	endpoints := client.Endpoints()
	statuses := make([]*clientv3.StatusResponse, len(endpoints))
	for i, endpoint := range endpoints {
		group.Go(func() {
			if status, err := client.Status(ctx, endpoint); err == nil {
				statuses[i] = status
			}
		})
	}
	group.Wait()
	for _, status := range statuses {
		if status != nil && status.DbSize > size {
			size, quota = status.DbSize, status.DbSizeQuota
		}
	}
	if size == 0 {
		return 0, 0, fmt.Errorf("reading the size of etcd %s: no member answers", strings.Join(endpoints, ","))
	}
	return size, quota, nil
}

// etcd is a client for what storage.Interface does not tell. It lives as long as the store.
func (s *store) etcd(ctx context.Context) (*clientv3.Client, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if s.client == nil {
		client, err := etcdclient.New(context.WithoutCancel(ctx), s.transport)
		if err != nil {
			return nil, err
		}
		s.client = client
	}
	return s.client, nil
}
