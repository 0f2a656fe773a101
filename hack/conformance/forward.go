// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// forwarder passes connections to a port of the loopback interface on to a unix socket. The embedded etcd
// listens on a socket only, but parts of the suite can dial nothing but a plain http URL.
type forwarder struct {
	listener net.Listener
	socket   string
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// startForwarder returns a forwarder that accepts connections. The caller must close it.
func startForwarder(ctx context.Context, socket string) (*forwarder, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for clients of etcd: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &forwarder{listener: listener, socket: socket, cancel: cancel}
	f.running.Go(func() { f.accept(ctx) })
	return f, nil
}

// url is the address for clients of etcd.
func (f *forwarder) url() string {
	return "http://" + f.listener.Addr().String()
}

// close cuts all connections and waits until they are gone.
func (f *forwarder) close() error {
	f.cancel()
	err := f.listener.Close()
	f.running.Wait()
	return err
}

func (f *forwarder) accept(ctx context.Context) {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return // closed
		}
		f.running.Go(func() { f.forward(ctx, client) })
	}
}

// forward copies in both directions until either side or ctx ends. A client sees every error as a cut connection.
func (f *forwarder) forward(ctx context.Context, client io.ReadWriteCloser) {
	defer client.Close()
	var server io.ReadWriteCloser
	server, err := (&net.Dialer{}).DialContext(ctx, "unix", f.socket)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() {
		client.Close()
		server.Close()
	})
	var copying sync.WaitGroup
	for _, pair := range [][2]io.ReadWriter{{client, server}, {server, client}} {
		copying.Go(func() {
			defer cancel()
			io.Copy(pair[0], pair[1]) //nolint:errcheck // the connection ends in any case
		})
	}
	copying.Wait()
}
