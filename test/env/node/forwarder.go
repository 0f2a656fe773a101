// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// forwarder passes the connections of one port of one Service on. A connection
// stays with its backend when the backends change.
type forwarder struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	backends []string
	next     int
	conns    map[net.Conn]struct{}
}

func newForwarder(ctx context.Context, address string) (*forwarder, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EACCES) {
		return nil, fmt.Errorf("serving a Service at %s: %w: run the test as root, or set net.ipv4.ip_unprivileged_port_start=0", address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("serving a Service at %s: %w", address, err)
	}
	f := &forwarder{listener: listener, conns: map[net.Conn]struct{}{}}
	f.wg.Go(f.accept)
	return f, nil
}

func (f *forwarder) setBackends(backends []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backends = backends
}

func (f *forwarder) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.pass(client) })
	}
}

// choose returns the backend of the next connection. As in a cluster it is tried
// only once, whether it answers or not.
func (f *forwarder) choose() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.backends) == 0 {
		return ""
	}
	f.next++
	return f.backends[f.next%len(f.backends)]
}

func (f *forwarder) pass(client net.Conn) {
	backend, err := net.Dial("tcp", f.choose())
	if err != nil {
		reset(client)
		return
	}
	if !f.track(client, backend) {
		return
	}
	var copies sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, backend}, {backend, client}} {
		copies.Go(func() {
			if _, err := io.Copy(pair[0], pair[1]); err != nil {
				reset(client)
				reset(backend)
				return
			}
			closeWrite(pair[0])
		})
	}
	copies.Wait()
	f.forget(client, backend)
}

// reset cuts a connection the way a refused one looks.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closing still cuts it
	}
	_ = conn.Close() // nothing to answer with
}

// closeWrite tells the other end that nothing more comes.
func closeWrite(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // the other end may have gone
	}
}

// track remembers connections for close; false when close came first.
func (f *forwarder) track(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range conns {
		if f.conns == nil {
			reset(conn)
			continue
		}
		f.conns[conn] = struct{}{}
	}
	return f.conns != nil
}

func (f *forwarder) forget(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // both directions have ended
		delete(f.conns, conn)
	}
}

// close stops listening, cuts all connections and waits for the goroutines.
func (f *forwarder) close() {
	_ = f.listener.Close() // the address is free in any case
	f.mu.Lock()
	for conn := range f.conns {
		reset(conn)
	}
	f.conns = nil
	f.mu.Unlock()
	f.wg.Wait()
}
