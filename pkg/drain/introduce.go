// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// pipeNetwork is that of the addresses of a net.Pipe.
	pipeNetwork = "pipe"
	// introductionPatience bounds how long clients wait for the introduction.
	introductionPatience = 10 * time.Second
)

// Introduction makes a server that somebody else builds and runs known to Connections: upstream's is
// not within reach (k8s.io/apiserver pkg/server/secure_serving.go, Serve). The first
// connection that Listener hands out is its own, and the request on it meets its server in Handler. Others are
// accepted after that, so none is served while the server is being changed.
type Introduction struct {
	connections *Connections
	over        chan struct{}
	end         func()
	own         chan net.Conn
	far         net.Conn
	failure     error
}

// Introduce returns an introduction. Run must be called when the server is about to be started.
func Introduce(connections *Connections) *Introduction {
	near, far := net.Pipe()
	i := &Introduction{connections: connections, over: make(chan struct{}), own: make(chan net.Conn, 1), far: far}
	i.end = sync.OnceFunc(func() { close(i.over) })
	i.own <- near
	return i
}

// Listener returns the listener of the server over that of its clients.
func (i *Introduction) Listener(clients net.Listener) net.Listener {
	return &listener{Listener: clients, introduction: i}
}

type listener struct {
	net.Listener

	introduction *Introduction
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case own := <-l.introduction.own:
		return own, nil
	default:
	}
	<-l.introduction.over
	return l.Listener.Accept()
}

// Handler returns the handler of the server.
func (i *Introduction) Handler(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !isIntroduction(request) {
			handler.ServeHTTP(w, request)
			return
		}
		server, err := serverOf(request)
		if err == nil {
			err = i.connections.Follow(server)
		}
		i.failure = err
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusNoContent)
	})
}

// Run introduces the server, which is trusted by config. It returns when that is done, or has failed: then
// connections are served, but not drained.
func (i *Introduction) Run(ctx context.Context, config *tls.Config) error {
	defer i.end()
	ctx, cancel := context.WithTimeout(ctx, introductionPatience)
	defer cancel()
	defer i.far.Close() //nolint:errcheck // nothing is lost with it
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	client := http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn := tls.Client(i.far, config)
			return conn, conn.HandshakeContext(ctx)
		},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+pipeNetwork, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("preparing to let clients leave before a stop: %w", err)
	}
	response.Body.Close()
	if i.failure != nil {
		return fmt.Errorf("preparing to let clients leave before a stop: %w", i.failure)
	}
	return nil
}
