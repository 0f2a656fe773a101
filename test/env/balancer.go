// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/kubeannex/annex/test/env/ports"
)

// balancer forwards TCP connections to the first backend that accepts them,
// taking turns. It stands for the cluster's Service in front of several
// replicas: kube-apiserver resolves a Service of type ExternalName to one port.
type balancer struct {
	listener net.Listener
	backends []string

	mu    sync.Mutex
	next  int
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

// startBalancer returns the port of a balancer that the environment ends.
func (e *Env) startBalancer(backends []string) (int, error) {
	port, err := e.ports.Take()
	if err != nil {
		return 0, err
	}
	listener, err := net.Listen("tcp", ports.Address(port))
	if err != nil {
		return 0, fmt.Errorf("starting the load balancer: %w", err)
	}
	b := &balancer{listener: listener, backends: backends, conns: map[net.Conn]struct{}{}}
	e.closeWith(b)
	b.wg.Go(b.accept)
	return port, nil
}

func (b *balancer) accept() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.wg.Go(func() { b.forward(client) })
	}
}

// forward copies both ways until one side closes.
func (b *balancer) forward(client net.Conn) {
	backend, err := b.dial()
	if err != nil {
		client.Close() //nolint:errcheck // nothing to answer with
		return
	}
	if !b.track(client, backend) {
		return
	}
	var copies sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, backend}, {backend, client}} {
		copies.Go(func() {
			io.Copy(pair[0], pair[1]) //nolint:errcheck // ends with either connection
			client.Close()            //nolint:errcheck // ends the other copy
			backend.Close()           //nolint:errcheck // ends the other copy
		})
	}
	copies.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, client)
	delete(b.conns, backend)
}

func (b *balancer) dial() (net.Conn, error) {
	b.mu.Lock()
	first := b.next
	b.next++
	b.mu.Unlock()
	var errs []error
	for i := range b.backends {
		conn, err := net.Dial("tcp", b.backends[(first+i)%len(b.backends)])
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// track remembers connections for Close; false when Close came first.
func (b *balancer) track(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		if b.conns == nil {
			conn.Close() //nolint:errcheck // the balancer has ended
			continue
		}
		b.conns[conn] = struct{}{}
	}
	return b.conns != nil
}

// Close stops listening, cuts all connections and waits for the goroutines.
func (b *balancer) Close() error {
	err := b.listener.Close()
	b.mu.Lock()
	for conn := range b.conns {
		conn.Close() //nolint:errcheck // ends the copies
	}
	b.conns = nil
	b.mu.Unlock()
	b.wg.Wait()
	return err
}
