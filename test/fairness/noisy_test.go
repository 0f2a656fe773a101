// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	// listers is how many lists the noisy client runs at a time: several times what its seats and its queue hold.
	listers = 40
	// rounds is how often the quiet client does each of its things.
	rounds = 40
)

// TestNoisyLister has one client run many lists of everything and read them slowly (kubernetes/kubernetes
// 115409). It is refused with 429 and Retry-After, and another client, which renews one object as
// leader election does, is not refused once, at annex itself and through kube-apiserver.
func TestNoisyLister(t *testing.T) {
	ctx := testContext(t)
	quietOnes := map[string]*client{
		"direct":     newClient(t, direct(t, quiet)),
		"aggregated": newClient(t, aggregated(t, quiet)),
	}
	waitLevel(ctx, t, quietOnes["direct"])
	before := map[string][]time.Duration{}
	for name, c := range quietOnes {
		before[name] = c.renew(ctx, t)
	}

	noise := startNoise(ctx, t)
	for name, c := range quietOnes {
		during := c.renew(ctx, t)
		t.Logf("%s: p50 %s alone, %s beside the noise; p99 %s alone, %s beside it", name,
			quantile(before[name], 50), quantile(during, 50), quantile(before[name], 99), quantile(during, 99))
	}
	// The noise has not ended meanwhile.
	if got := newClient(t, direct(t, noisy)).mustDo(ctx, t, http.MethodGet, allGadgets, nil); got.code != http.StatusTooManyRequests {
		t.Errorf("at the end one more list of the noisy client: %d, want 429", got.code)
	}
	served, refused := noise.stop()
	t.Logf("of %d lists of the noisy client %d were begun and %d refused", listers, served, refused)
	if served == 0 || refused == 0 {
		t.Errorf("got %d lists begun and %d refused, want some of both", served, refused)
	}
}

// waitLevel waits until annex knows the levels of priority of the cluster: the quiet client then has its own.
func waitLevel(ctx context.Context, t *testing.T, c *client) {
	t.Helper()
	others := newClient(t, direct(t, noisy))
	for {
		own, theirs := c.mustDo(ctx, t, http.MethodGet, oneGadget, nil), others.mustDo(ctx, t, http.MethodGet, oneGadget, nil)
		if own.code == http.StatusOK && theirs.code == http.StatusOK && own.level != "" && theirs.level != "" && own.level != theirs.level {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the users have the levels %q and %q, answers %d and %d: %s", own.level, theirs.level, own.code, theirs.code, own.body)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// renew does what a leader and its like do. Everything must be answered with 200.
func (c *client) renew(ctx context.Context, t *testing.T) (took []time.Duration) {
	t.Helper()
	for i := range rounds {
		for _, request := range []struct {
			method, path string
			body         []byte
		}{
			{method: http.MethodPatch, path: oneGadget, body: fmt.Appendf(nil, `{"metadata":{"annotations":{"renewed":"%d"}}}`, i)},
			{method: http.MethodGet, path: oneGadget},
			{method: http.MethodGet, path: allGadgets + "?fieldSelector=spec.color%3D" + rare + "&resourceVersion=0"},
			{method: http.MethodGet, path: "/readyz"},
		} {
			begin := time.Now()
			got := c.mustDo(ctx, t, request.method, request.path, request.body)
			took = append(took, time.Since(begin))
			if got.code != http.StatusOK {
				t.Errorf("%s %s beside the noise: %d, want 200: %.200s", request.method, request.path, got.code, got.body)
			}
		}
	}
	return took
}

func quantile(took []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[(len(sorted)-1)*percent/100].Round(time.Microsecond)
}

// noise is the noisy client.
type noise struct {
	cancel          context.CancelFunc
	lists           sync.WaitGroup
	lock            sync.Mutex
	served, refused int
}

// startNoise begins the lists and returns when the first ones are begun and refused.
func startNoise(ctx context.Context, t *testing.T) *noise {
	t.Helper()
	n := &noise{}
	ctx, n.cancel = context.WithCancel(ctx)
	t.Cleanup(n.cancel)
	for range listers {
		c := newClient(t, direct(t, noisy))
		n.lists.Go(func() { n.list(ctx, t, c) })
	}
	for {
		n.lock.Lock()
		served, refused := n.served, n.refused
		n.lock.Unlock()
		if served > 0 && refused > 0 {
			return n
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d lists are begun and %d refused, want some of both", served, refused)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// list begins one list and reads no more of it until the noise ends.
func (n *noise) list(ctx context.Context, t *testing.T, c *client) {
	response, err := c.begin(ctx, http.MethodGet, allGadgets, nil)
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("a list of the noisy client: %v", err)
		}
		return
	}
	defer response.Body.Close()
	n.lock.Lock()
	switch {
	case response.StatusCode == http.StatusOK:
		n.served++
	case response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") != "":
		n.refused++
	default:
		t.Errorf("a list of the noisy client: %s, Retry-After %q, want 200, or 429 with Retry-After", response.Status, response.Header.Get("Retry-After"))
	}
	n.lock.Unlock()
	if response.StatusCode == http.StatusOK {
		<-ctx.Done()
	}
}

// stop ends the lists and returns how many were begun and refused.
func (n *noise) stop() (served, refused int) {
	n.cancel()
	n.lists.Wait()
	return n.served, n.refused
}
