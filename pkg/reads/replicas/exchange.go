// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas adds up who reads what over all processes of annex-apiserver that
// share an etcd. They know no addresses of each other, so etcd is where they meet:
//
//   - replicas/<id>: that a process is there, under its lease;
//   - questions/<id>: written by a process that wants to know what the others have seen;
//   - answers/<id>: what a process had seen when it was asked last, of bounded size.
//
// Nothing is written but when a process starts and when somebody asks: each write
// to an etcd makes consistent reads of all else in it wait until their caches have
// heard of its revision. All keys go with the lease of who wrote them.
package replicas

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/singleflight"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/reads"
)

// root is above all keys of this package. No key of an API server begins like it:
// those begin with a slash, whatever the --etcd-prefix is.
const root = "kubeannex.io/reads/"

const (
	// leaseTTL is how long a process that was killed is thought to be there.
	leaseTTL = 15 * time.Second
	// patience is how long a question waits for answers.
	patience = 3 * time.Second
	// reuse is how long an answer is good for those who ask next.
	reuse = 2 * time.Second
	// maxProfiles is how many profiles an answer has, and once more as many sums of others.
	maxProfiles = 200
	// idLength makes it unlikely that two processes have one ID.
	idLength = 8
)

// Source has what this process has seen.
type Source interface {
	// Profiles returns all profiles, the worst first. The caller owns them.
	Profiles() *kubeannex.ListProfileList
}

// Options says where processes meet.
type Options struct {
	// Transport reaches the etcd that they share.
	Transport storagebackend.TransportConfig
	// Prefix is the --etcd-prefix: who has another one is another server.
	Prefix string
	// Name is what this process is called. It need not be unique.
	Name string
	// Source has what this process has seen.
	Source Source
}

// Exchange tells the other processes what this one has seen, and asks them. It is safe
// for concurrent use.
type Exchange struct {
	transport storagebackend.TransportConfig
	source    Source
	name, id  string
	// keys is the root of this server's keys.
	keys string

	leaseTTL, patience, reuse time.Duration

	questions singleflight.Group

	lock sync.Mutex
	link link
	// recent is the last answer. It is only read.
	recent *answers
}

// link is what an Exchange has at etcd.
type link struct {
	// client is nil before Run and after it.
	client *clientv3.Client
	// lease is that of the keys of this process. It is 0 as long as it is not registered.
	lease clientv3.LeaseID
	// err says why it is not.
	err error
}

var errNotRunning = errors.New("this replica is starting or stopping")

// New returns an exchange for Run.
func New(options Options) *Exchange {
	return &Exchange{
		transport: options.Transport, source: options.Source,
		name: options.Name, id: utilrand.String(idLength),
		// Escaped, one prefix is never the begin of another.
		keys:     root + url.PathEscape(path.Join("/", options.Prefix)) + "/",
		leaseTTL: leaseTTL, patience: patience, reuse: reuse,
		link: link{err: errNotRunning},
	}
}

func (e *Exchange) linked() link {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.link
}

// setLink replaces what there is at etcd and closes a client that is used no more.
func (e *Exchange) setLink(l link) {
	e.lock.Lock()
	before := e.link.client
	e.link = l
	e.lock.Unlock()
	if before != nil && before != l.client {
		_ = before.Close() // it reports its context, which is not of interest
	}
}

// own is what this process has seen.
func (e *Exchange) own() *kubeannex.ListProfileList {
	list := e.source.Profiles()
	list.Replicas = []string{e.name}
	return list
}

// Profiles returns what all processes have seen, the worst first. What other
// processes than this one have seen may be two seconds old. A warning, unless it is empty, says
// in one line what is missing and why.
func (e *Exchange) Profiles(ctx context.Context) (list *kubeannex.ListProfileList, warning string) {
	others := e.ask(ctx)
	list = reads.Merge(append([]*kubeannex.ListProfileList{e.own()}, others.lists...)...)
	list.Replica = e.name
	list.Missing = others.missing
	return list, others.warning(e.name)
}

// ask asks the others, once for all who want to know it at the same time.
func (e *Exchange) ask(ctx context.Context) *answers {
	// A client that leaves must not take the answer from the next one.
	asking := context.WithoutCancel(ctx)
	result := e.questions.DoChan("", func() (any, error) {
		recent := e.lastAnswer()
		if recent != nil && time.Since(recent.at) < e.reuse {
			return recent, nil
		}
		recent = e.askNow(asking)
		e.lock.Lock()
		defer e.lock.Unlock()
		e.recent = recent
		return recent, nil
	})
	select {
	case answered := <-result:
		return answered.Val.(*answers) //nolint:forcetypeassert // it returns nothing else
	case <-ctx.Done():
		return &answers{err: ctx.Err()}
	}
}

func (e *Exchange) lastAnswer() *answers {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.recent
}

func (e *Exchange) key(kind, id string) string {
	return e.keys + kind + "/" + id
}

// Below keys.
const (
	kindReplica  = "replicas"
	kindQuestion = "questions"
	kindAnswer   = "answers"
)

func within(ctx context.Context, limit time.Duration, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("etcd has not answered within %s", limit))
	defer cancel()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
