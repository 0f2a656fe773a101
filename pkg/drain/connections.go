// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// grace is the time that clients have to take note before the server stops. It is many
// times that of a message to the other end of a cluster.
const grace = time.Second

// The settings of HTTP/2 of k8s.io/apiserver pkg/server/secure_serving.go, Serve.
const (
	idleTimeout       = 90 * time.Second
	uploadBuffer      = 256 << 10
	concurrentStreams = 100
)

// Connections are those of one server.
type Connections struct {
	// maxStreams is the number of streams of one connection.
	maxStreams uint32
	ownName    string
	draining   atomic.Bool
	// oldClients says that a client speaks HTTP/1.1, whose connections are not followed.
	oldClients atomic.Bool

	lock  sync.Mutex
	conns map[*conn]struct{}
}

// New returns the connections of a server that has none yet. maxStreams is the value of
// --http2-max-streams-per-connection; 0 stands for upstream's default. Clients that ask for the server by the
// name ownName are the server's own, which stay to its end.
func New(maxStreams int, ownName string) *Connections {
	c := &Connections{maxStreams: concurrentStreams, ownName: ownName, conns: map[*conn]struct{}{}}
	if maxStreams > 0 {
		c.maxStreams = uint32(maxStreams) //nolint:gosec // a flag that is validated
	}
	return c
}

// Follow makes a server that has no connections yet but that of the caller serve HTTP/2 on connections
// that can be drained. It takes the place of upstream's own configuration, with the same settings.
//
//nolint:staticcheck // k8s.io/apiserver serves by the deprecated type, and only with that a connection can be handed over
func (c *Connections) Follow(server *http.Server) error {
	if server.TLSNextProto[http2.NextProtoTLS] == nil {
		return nil // HTTP/2 is switched off
	}
	h2 := &http2.Server{
		IdleTimeout:                  idleTimeout,
		MaxUploadBufferPerStream:     uploadBuffer,
		MaxReadFrameSize:             uploadBuffer,
		MaxConcurrentStreams:         c.maxStreams,
		MaxUploadBufferPerConnection: uploadBuffer * int32(c.maxStreams), //nolint:gosec // as upstream
	}
	if err := http2.ConfigureServer(server, h2); err != nil {
		return fmt.Errorf("configuring HTTP/2: %w", err)
	}
	server.TLSNextProto[http2.NextProtoTLS] = func(server *http.Server, tlsConn *tls.Conn, handler http.Handler) {
		followed := c.add(tlsConn)
		defer c.remove(followed)
		h2.ServeConn(followed, &http2.ServeConnOpts{Context: baseContext(handler), Handler: handler, BaseConfig: server})
	}
	return nil
}

// baseContext is that of the connection, which net/http hands on as a method of the
// handler (golang.org/x/net/http2/server.go, ConfigureServer).
func baseContext(handler http.Handler) context.Context {
	if base, ok := handler.(interface{ BaseContext() context.Context }); ok {
		return base.BaseContext()
	}
	return context.Background()
}

func (c *Connections) add(tlsConn *tls.Conn) *conn {
	c.lock.Lock()
	defer c.lock.Unlock()
	if tlsConn.ConnectionState().ServerName == c.ownName {
		return &conn{Conn: tlsConn}
	}
	followed := &conn{Conn: tlsConn, draining: c.draining.Load()}
	c.conns[followed] = struct{}{}
	return followed
}

func (c *Connections) remove(followed *conn) {
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.conns, followed)
}

// Drain tells all clients to leave, and returns when they have had time to. Clients that come
// meanwhile are answered once and told the same. Where nobody is connected it returns at once.
func (c *Connections) Drain() {
	c.lock.Lock()
	c.draining.Store(true)
	for followed := range c.conns {
		// One that does not read must not hold up the others. It ends with the server.
		go followed.drain() //nolint:errcheck // a client that is gone has left
	}
	connected := len(c.conns) > 0 || c.oldClients.Load()
	c.lock.Unlock()
	if connected {
		<-time.After(grace)
	}
}

// Handler lets clients of HTTP/1.1 leave too.
func (c *Connections) Handler(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.ProtoMajor == 1 {
			c.oldClients.Store(true)
			if c.draining.Load() {
				w.Header().Set("Connection", "close")
			}
		}
		handler.ServeHTTP(w, request)
	})
}

// errNoServer says that a request is not served by net/http.
var errNoServer = errors.New("the request has no server")

// serverOf is the server that has accepted a request.
func serverOf(request *http.Request) (*http.Server, error) {
	server, ok := request.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil, errNoServer
	}
	return server, nil
}

// isIntroduction tells the connection of an Introduction from those of clients, which have addresses.
func isIntroduction(request *http.Request) bool {
	address, ok := request.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && address.Network() == pipeNetwork
}
