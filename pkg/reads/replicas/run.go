// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	etcdclient "github.com/kubeannex/annex/pkg/etcd/client"
	"github.com/kubeannex/annex/pkg/reads"
)

const (
	// requestTimeout bounds a request to etcd.
	requestTimeout = 2 * time.Second
	// goodbyeTimeout bounds the last one, for which a stop waits.
	goodbyeTimeout = time.Second
	// retryMax is the longest pause between two attempts to register.
	retryMax = 30 * time.Second
	// retryReset is how long a registration must hold for the next pause to be short again.
	retryReset = 2 * time.Minute
)

// replica is what a process tells of itself.
type replica struct {
	Name string `json:"name"`
}

// answer is what a process tells the others.
type answer struct {
	// Asked is the revision of the question that came last before it.
	Asked int64 `json:"asked"`
	// Profiles are those that cost the most.
	Profiles v1alpha1.ListProfileList `json:"profiles"`
}

// Run registers the process and answers the others until ctx is done. Then it takes
// back what it has in etcd, if etcd answers within a second. It must be called once at most.
func (e *Exchange) Run(ctx context.Context) {
	defer e.setLink(link{err: errNotRunning})
	logger := klog.FromContext(ctx)
	retry := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: retryMax}
	// It ends with the context only.
	_ = retry.DelayWithReset(clock.RealClock{}, retryReset).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := e.register(ctx)
		if ctx.Err() == nil {
			logger.Info("The other replicas do not see the reads of this one; trying again", "reason", err)
		}
		return false, nil
	})
}

// register returns when the process is not registered any more, or cannot be. The
// client stays until the next attempt: it reads what there is even if etcd is full.
func (e *Exchange) register(ctx context.Context) error {
	// The end of the context is told to etcd by this client.
	client, err := etcdclient.New(context.WithoutCancel(ctx), e.transport)
	if err != nil {
		e.setLink(link{err: err})
		return err
	}
	lease, err := e.registerWith(ctx, client)
	e.setLink(link{client: client, err: err})
	if lease != clientv3.NoLease {
		_ = within(context.WithoutCancel(ctx), goodbyeTimeout, "", func(ctx context.Context) error {
			_, err := client.Revoke(ctx, lease)
			return err
		})
	}
	return err
}

// registerWith returns the lease as soon as there is one.
func (e *Exchange) registerWith(ctx context.Context, client *clientv3.Client) (lease clientv3.LeaseID, err error) {
	e.setLink(link{client: client, err: errors.New("this replica is not registered in etcd yet")})
	err = within(ctx, requestTimeout, "getting a lease of etcd", func(ctx context.Context) error {
		granted, err := client.Grant(ctx, int64(e.leaseTTL/time.Second))
		if err == nil {
			lease = granted.ID
		}
		return err
	})
	if err != nil {
		return lease, err
	}
	var registered int64
	err = within(ctx, requestTimeout, "registering in etcd", func(ctx context.Context) error {
		value, err := json.Marshal(replica{Name: e.name})
		if err != nil {
			return err
		}
		put, err := client.Put(ctx, e.key(kindReplica, e.id), string(value), clientv3.WithLease(lease))
		if err == nil {
			registered = put.Header.GetRevision()
		}
		return err
	})
	if err != nil {
		return lease, err
	}
	e.setLink(link{client: client, lease: lease})
	return lease, e.serve(ctx, client, lease, registered)
}

// serve answers questions that were asked after a revision, as long as the lease is kept.
func (e *Exchange) serve(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID, after int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	kept, err := client.KeepAlive(ctx, lease)
	if err != nil {
		return err
	}
	questions := client.Watch(ctx, e.key(kindQuestion, ""), clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithFilterDelete())
	for {
		select {
		case _, ok := <-kept:
			if !ok {
				return errors.New("etcd has not kept the lease of this replica")
			}
		case asked, ok := <-questions:
			if !ok {
				return errors.New("etcd has ended the watch of questions")
			}
			if err := asked.Err(); err != nil {
				return err
			}
			if revision := e.askedByOthers(asked.Events); revision != 0 {
				if err := e.answer(ctx, client, lease, revision); err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).Info("Another replica does not get the reads of this one", "reason", err)
				}
			}
		}
	}
}

// askedByOthers is the revision of the last question of others, 0 without one.
func (e *Exchange) askedByOthers(events []*clientv3.Event) (revision int64) {
	for _, event := range events {
		if string(event.Kv.Key) != e.key(kindQuestion, e.id) {
			revision = max(revision, event.Kv.ModRevision)
		}
	}
	return revision
}

// answer writes what this process has seen. One key is enough for all who ask: an answer
// to a later question is one to the earlier ones too.
func (e *Exchange) answer(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID, asked int64) error {
	value, err := e.encode(asked)
	if err != nil {
		return err
	}
	return within(ctx, requestTimeout, "writing to etcd", func(ctx context.Context) error {
		_, err := client.Put(ctx, e.key(kindAnswer, e.id), string(value), clientv3.WithLease(lease))
		return err
	})
}

func (e *Exchange) encode(asked int64) ([]byte, error) {
	list := e.own()
	reads.Shorten(list, maxProfiles)
	encoded := answer{Asked: asked}
	if err := v1alpha1.Convert_kubeannex_ListProfileList_To_v1alpha1_ListProfileList(list, &encoded.Profiles, nil); err != nil {
		return nil, err
	}
	return json.Marshal(encoded)
}
