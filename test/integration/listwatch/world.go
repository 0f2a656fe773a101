// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/storage/annexed"
	"github.com/kubeannex/annex/test/env"
)

const (
	// futureDistance is how far rvFuture is above etcd's revision.
	futureDistance = 1_000_000
	pollInterval   = 50 * time.Millisecond
)

// Running is a server that serves, and its etcd.
type Running struct {
	// Config is a client that may do everything.
	Config *rest.Config
	// Etcd are the endpoints of the etcd; no certificates are needed.
	Etcd []string
	// Counts reads what the requests for a resource have cost etcd. Nil when the
	// server does not tell; then nobody looks at who answers.
	Counts func(schema.GroupResource) annexed.Counts
	// Stop ends the server and keeps its data.
	Stop func() error
}

// StartFunc starts a server, each time on the same data.
type StartFunc func(context.Context) (*Running, error)

// World is a server with resources that have the same history:
//
//	stage 0, then revision "compacted"
//	stage 1, then revision "older than the cache"; etcd is compacted up to here
//	stage 2, then the server is stopped and started, so that its caches begin here
//	stage 3, then revision "older"
//	stage 4, then revision "current"
type World struct {
	running   *Running
	client    *http.Client
	etcd      *clientv3.Client
	revisions map[rv]int64
	resources []*resource
}

// Variant says what a world has beside the history of custom resources.
type Variant struct {
	// OwnTypes adds the history of AnnexedGroups.
	OwnTypes bool
	// Prepare, if any, is called once when the server serves and has the definitions.
	Prepare func(context.Context, *rest.Config) error
}

// NewWorld starts a server, writes the history and leaves the server running. The
// caller owns the world and must Close it.
func NewWorld(ctx context.Context, start StartFunc, variant Variant) (*World, error) {
	w := &World{revisions: map[rv]int64{}, resources: []*resource{newGadgets()}}
	if variant.OwnTypes {
		w.resources = append(w.resources, newAnnexedGroups())
	}
	if err := w.writeHistory(ctx, start, variant.Prepare); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *World) start(ctx context.Context, start StartFunc) (err error) {
	if w.running, err = start(ctx); err != nil {
		return err
	}
	if w.client, err = rest.HTTPClientFor(w.running.Config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	w.etcd, err = clientv3.New(clientv3.Config{Endpoints: w.running.Etcd, DialTimeout: 10 * time.Second})
	if err != nil {
		return fmt.Errorf("making a client of etcd: %w", err)
	}
	return nil
}

// Close ends the server.
func (w *World) Close() error {
	var errs []error
	if w.etcd != nil {
		errs = append(errs, w.etcd.Close())
	}
	if w.client != nil {
		w.client.CloseIdleConnections()
	}
	if w.running != nil {
		errs = append(errs, w.running.Stop())
	}
	w.running, w.client, w.etcd = nil, nil, nil
	return errors.Join(errs...)
}

func (w *World) writeHistory(ctx context.Context, start StartFunc, prepare func(context.Context, *rest.Config) error) error {
	if err := w.start(ctx, start); err != nil {
		return err
	}
	for _, definition := range []func() (*apiextensionsv1.CustomResourceDefinition, error){env.GadgetCRD, knobCRD} {
		crd, err := definition()
		if err != nil {
			return err
		}
		if err := env.InstallCRD(ctx, w.running.Config, crd); err != nil {
			return err
		}
	}
	if prepare != nil {
		if err := prepare(ctx, w.running.Config); err != nil {
			return err
		}
	}
	if err := w.stage(ctx, 0, rvCompacted); err != nil {
		return err
	}
	if err := w.stage(ctx, 1, rvUncached); err != nil {
		return err
	}
	if _, err := w.etcd.Compact(ctx, w.revisions[rvUncached], clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("compacting etcd: %w", err)
	}
	if err := w.stage(ctx, 2, ""); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := w.start(ctx, start); err != nil {
		return err
	}
	if err := w.fillCaches(ctx); err != nil {
		return err
	}
	if err := w.stage(ctx, 3, rvOlder); err != nil {
		return err
	}
	if err := w.stage(ctx, 4, rvCurrent); err != nil {
		return err
	}
	w.revisions[rvFuture] = w.revisions[rvCurrent] + futureDistance
	// A consistent list leaves the caches at the current revision.
	return w.fillCaches(ctx)
}

// stage makes the writes of one stage, remembers the revision after it and asks
// for continue tokens that carry it.
func (w *World) stage(ctx context.Context, number int, name rv) error {
	for _, r := range w.resources {
		for _, change := range stages()[number] {
			if err := r.apply(ctx, w, change); err != nil {
				return fmt.Errorf("stage %d: %w", number, err)
			}
		}
	}
	if name == "" {
		return nil
	}
	revision, err := w.etcdRevision(ctx)
	if err != nil {
		return err
	}
	w.revisions[name] = revision
	for _, r := range w.resources {
		if err := r.takeTokens(ctx, w, token(name)); err != nil {
			return fmt.Errorf("taking continue tokens at %q: %w", name, err)
		}
	}
	return nil
}

func (w *World) etcdRevision(ctx context.Context) (int64, error) {
	answer, err := w.etcd.Get(ctx, "any key")
	if err != nil {
		return 0, fmt.Errorf("asking etcd for its revision: %w", err)
	}
	return answer.Header.Revision, nil
}

// deletionRevision waits until etcd tells at which revision a key was deleted.
func (w *World) deletionRevision(ctx context.Context, key string, from int64) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for answer := range w.etcd.Watch(ctx, key, clientv3.WithRev(from)) {
		if err := answer.Err(); err != nil {
			return 0, fmt.Errorf("watching %s in etcd: %w", key, err)
		}
		for _, event := range answer.Events {
			if event.Type == clientv3.EventTypeDelete {
				return event.Kv.ModRevision, nil
			}
		}
	}
	return 0, fmt.Errorf("watching %s in etcd: the watch ended", key)
}

// fillCaches waits until the cache of every resource answers, and is fresh.
func (w *World) fillCaches(ctx context.Context) error {
	for _, r := range w.resources {
		var last answer
		err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			var err error
			last, err = w.do(ctx, http.MethodGet, r.path("")+"?resourceVersion=0", nil)
			return err == nil && last.code == http.StatusOK, nil
		})
		if err != nil {
			return fmt.Errorf("waiting for the cache of %s: %w, last answer: %s", r.name, err, last.body)
		}
		if err := w.must(ctx, http.MethodGet, r.path(""), nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// resourceVersion returns the parameter for a kind of revision.
func (w *World) resourceVersion(kind rv) string {
	switch kind {
	case rvUnset:
		return ""
	case rvZero:
		return "0"
	default:
		return strconv.FormatInt(w.revisions[kind], 10)
	}
}

// clientCounts reads what clients' requests have cost etcd so far. What the
// cache does for its own sake is left out.
func (w *World) clientCounts(r *resource) annexed.Counts {
	counts := annexed.Counts{}
	if w.running.Counts == nil {
		return counts
	}
	for request, n := range w.running.Counts(r.groupResource) {
		if request.Caller == annexed.CallerClient || request.Caller == annexed.CallerConsistentRead {
			counts[request] = n
		}
	}
	return counts
}

// compareCosts compares what requests have cost etcd since before; it is empty
// when they agree or the server does not tell.
func (w *World) compareCosts(r *resource, want, before annexed.Counts) string {
	if w.running.Counts == nil {
		return ""
	}
	return diffCounts(want, w.clientCounts(r).Sub(before))
}
