// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// lookPeriod is how often the balancer asks whether its backends are ready.
const lookPeriod = 100 * time.Millisecond

// balancer forwards new connections to backends that are ready, in turns, as kube-proxy does with a
// Service. Connections that are there already stay where they are.
type balancer struct {
	listener net.Listener

	lock  sync.Mutex
	ready []string
	next  int
	// first lets nothing through to any but the first backend.
	first bool
}

// startBalancer starts a balancer over the servers of configs, of which it uses the first one until
// useAll is called. It ends with ctx.
func startBalancer(ctx context.Context, t *testing.T, configs ...*rest.Config) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: listener, first: true}
	var looks, connections sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	b.look(ctx, t, configs)
	looks.Go(func() {
		tick := time.NewTicker(lookPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				b.look(ctx, t, configs)
			}
		}
	})
	looks.Go(func() { b.accept(ctx, &connections) })
	t.Cleanup(func() {
		cancel()
		listener.Close() //nolint:errcheck // nothing is lost with it
		looks.Wait()
		connections.Wait()
	})
	return b
}

// address is where clients connect to.
func (b *balancer) address() *net.TCPAddr { return b.listener.Addr().(*net.TCPAddr) }

// look asks every backend over a connection of its own, as a kubelet does.
func (b *balancer) look(ctx context.Context, t *testing.T, configs []*rest.Config) {
	var ready []string
	for _, config := range configs {
		client := newClient(t, config)
		lookCtx, cancel := context.WithTimeout(ctx, time.Second)
		got, err := client.do(lookCtx, http.MethodGet, "/readyz", nil)
		cancel()
		client.http.CloseIdleConnections()
		backend, _ := url.Parse(config.Host)
		if err == nil && got.code == http.StatusOK {
			ready = append(ready, backend.Host)
		}
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	b.ready = ready
}

func (b *balancer) useAll() {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.first = false
}

func (b *balancer) pick() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	switch {
	case len(b.ready) == 0:
		return ""
	case b.first:
		return b.ready[0]
	}
	b.next++
	return b.ready[b.next%len(b.ready)]
}

func (b *balancer) accept(ctx context.Context, connections *sync.WaitGroup) {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		connections.Go(func() { forward(ctx, client, b.pick()) })
	}
}

// forward copies both ways until one side closes.
func forward(ctx context.Context, client net.Conn, address string) {
	defer client.Close() //nolint:errcheck // it ends the other copy
	backend, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer backend.Close()                                                      //nolint:errcheck // it ends the other copy
	defer context.AfterFunc(ctx, func() { client.Close(); backend.Close() })() //nolint:errcheck // the test is over
	var copies sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, backend}, {backend, client}} {
		copies.Go(func() {
			io.Copy(pair[0], pair[1]) //nolint:errcheck // it ends with either connection
			pair[0].Close()           //nolint:errcheck // it ends the other copy
		})
	}
	copies.Wait()
}
