// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/kubeannex/annex/test/env"
)

// enough is how many requests are answered before the stop and after it.
const enough = 200

// TestReplicaStops ends one of two replicas with SIGTERM while clients write, list and watch, through
// kube-apiserver and past it (kubernetes/kubernetes 141318). No request fails, and every watch
// goes on without a gap.
func TestReplicaStops(t *testing.T) {
	ctx := testContext(t)
	b := startBalancer(ctx, t, adminAt(t, 0), adminAt(t, 1))
	leadTo(ctx, t, b.address())
	balanced := rest.CopyConfig(adminAt(t, 0))
	balanced.Host = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(b.address().Port))
	clients := map[string]*client{"aggregated": newClient(t, aggregated(t))}
	for i := range 2 {
		clients[fmt.Sprintf("direct-%d", i)] = newClient(t, balanced)
	}
	var follow sync.WaitGroup
	followCtx, endFollowers := context.WithCancel(ctx)
	var followers []*follower
	for name, c := range clients {
		followers = append(followers, startFollower(followCtx, t, name, c, &follow))
	}
	l := startLoad(ctx, t, clients)
	l.waitRequests(ctx, enough)
	b.useAll() // all connections are at the replica that stops

	begin := time.Now()
	if err := suite.annex.Replicas[0].Stop(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped after %s", time.Since(begin).Round(time.Millisecond))
	l.waitRequests(ctx, enough)
	l.cancel()
	l.work.Wait()
	for _, f := range followers {
		f.mustMissNothing(ctx, t, l.created)
	}
	endFollowers()
	follow.Wait()
	t.Logf("%d requests were answered as they should, %d failed", l.requests, len(l.failures))
	for _, failure := range l.failures {
		t.Error(failure)
	}
	restart(ctx, t, suite.annex.Replicas[0])
}

// mustMissNothing waits until a follower has seen everything.
func (f *follower) mustMissNothing(ctx context.Context, t *testing.T, created map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		missing := f.missing(created)
		if len(missing) == 0 {
			t.Logf("%s has seen all of %d objects in %d watches", f.name, len(created), f.watches)
			return
		}
		f.lock.Lock()
		failure := f.failure
		f.lock.Unlock()
		if failure != nil || ctx.Err() != nil {
			t.Errorf("%s has not seen %d of %d objects: %v", f.name, len(missing), len(created), failure)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// leadTo makes the Service of annex lead to an address of this machine.
func leadTo(ctx context.Context, t *testing.T, address *net.TCPAddr) {
	t.Helper()
	client, err := aggregatorclient.NewForConfig(aggregated(t))
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"spec":{"service":{"port":%d}}}`, address.Port)
	_, err = client.ApiregistrationV1().APIServices().Patch(ctx, "v1."+env.FixtureGroup, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// restart starts a replica again for the next test.
func restart(ctx context.Context, t *testing.T, server *env.AnnexServer) {
	t.Helper()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if err := server.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}
