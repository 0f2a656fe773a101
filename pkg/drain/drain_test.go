// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// writers is how many requests there are at a time on one connection.
const writers = 8

// instance is one server as upstream runs it, with the introduction.
type instance struct {
	connections *Connections
	server      *http.Server
	address     string
	trusted     *tls.Config
	requests    atomic.Int64
	lastProto   atomic.Int64
	done        chan struct{}
}

func start(t *testing.T) *instance {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	roots := x509.NewCertPool()
	roots.AddCert(certificate.Certificate())
	pair := certificate.TLS.Certificates[0]
	certificate.Close()

	i := &instance{
		connections: New(0, "own"), address: listener.Addr().String(), done: make(chan struct{}),
		trusted: &tls.Config{RootCAs: roots, ServerName: "example.com"},
	}
	introduction := Introduce(i.connections)
	handler := http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return
		}
		i.requests.Add(1)
		i.lastProto.Store(int64(request.ProtoMajor))
		fmt.Fprint(w, strings.Repeat("x", 1+int(i.requests.Load()%20000)))
	})
	i.server = &http.Server{
		Handler:           introduction.Handler(i.connections.Handler(handler)),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}},
		ReadHeaderTimeout: time.Minute,
	}
	if err := http2.ConfigureServer(i.server, &http2.Server{}); err != nil { //nolint:staticcheck // as k8s.io/apiserver does
		t.Fatal(err)
	}
	go func() {
		defer close(i.done)
		err := i.server.Serve(tls.NewListener(introduction.Listener(listener), i.server.TLSConfig))
		if !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving: %v", err)
		}
	}()
	if err := introduction.Run(t.Context(), i.trusted); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		i.server.Close() //nolint:errcheck // nothing is lost with it
		<-i.done
	})
	return i
}

func (i *instance) stop(t *testing.T) {
	t.Helper()
	i.connections.Drain()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := i.server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// unrepeatable is a body that a transport cannot send again.
type unrepeatable struct {
	io.Reader

	sent atomic.Bool
}

// Read implements io.Reader.
func (u *unrepeatable) Read(p []byte) (int, error) {
	u.sent.Store(true)
	return u.Reader.Read(p)
}

// TestDrainLosesNothing has many writers share connections to servers that stop one after another. No
// write that has left its client may fail, although none can be repeated. Without Drain some do within a few rounds.
//
// Go's client fails some that have not: those that wait for their turn on a connection when the
// first GOAWAY arrives (net/http, rewindBody, finds the body closed, although it was not read).
func TestDrainLosesNothing(t *testing.T) {
	first := start(t)
	var leader atomic.Pointer[instance]
	leader.Store(first)
	transport := &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: first.trusted.Clone(),
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, leader.Load().address)
		},
	}
	transport.TLSClientConfig.InsecureSkipVerify = true //nolint:gosec // the servers of the test have different certificates
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for range writers {
		clients.Go(func() {
			for ctx.Err() == nil {
				body := &unrepeatable{Reader: bytes.NewReader(make([]byte, 2000))}
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://example.com", body)
				if err != nil {
					t.Error(err)
					return
				}
				response, err := transport.RoundTrip(request)
				if err == nil {
					_, err = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
				if err != nil && body.sent.Load() && ctx.Err() == nil {
					t.Errorf("a write failed: %v", err)
				}
			}
		})
	}
	for range 3 {
		before, next := leader.Load(), start(t)
		waitRequests(t, before, 200)
		leader.Store(next) // as a Service does
		before.stop(t)
		waitRequests(t, next, 200)
		if next.lastProto.Load() != 2 {
			t.Errorf("the clients use HTTP/%d, want 2", next.lastProto.Load())
		}
	}
	cancel()
	clients.Wait()
}

func waitRequests(t *testing.T, i *instance, n int64) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for target := i.requests.Load() + n; i.requests.Load() < target; {
		select {
		case <-timeout:
			t.Fatalf("%d requests came, want %d", i.requests.Load(), target)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestDrainAnswersOnceMore demands that a client that comes while a server is drained is served, and told to leave.
func TestDrainAnswersOnceMore(t *testing.T) {
	for name, http2On := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			i := start(t)
			i.connections.Drain()
			dials := atomic.Int64{}
			transport := &http.Transport{
				ForceAttemptHTTP2: http2On, TLSClientConfig: i.trusted,
				DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
					dials.Add(1)
					return (&net.Dialer{}).DialContext(ctx, network, i.address)
				},
			}
			defer transport.CloseIdleConnections()
			client := http.Client{Transport: transport}
			// A client may send once more before it has read that it is to leave.
			requests := 0
			for ; dials.Load() < 3 && requests < 300; requests++ {
				response, err := client.Get("https://example.com")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil {
					t.Error(err)
				}
				response.Body.Close()
			}
			if dials.Load() < 3 {
				t.Errorf("%d requests took %d connections, want the client to leave each", requests, dials.Load())
			}
		})
	}
}

// TestDrainAloneIsQuick demands that a server without clients does not wait for them.
func TestDrainAloneIsQuick(t *testing.T) {
	i := start(t)
	begin := time.Now()
	i.connections.Drain()
	if took := time.Since(begin); took >= grace {
		t.Errorf("draining nobody took %s", took)
	}
}

// TestFollow feeds the frames of a server in pieces of every size to the reader of frames.
func TestFollow(t *testing.T) {
	var frames bytes.Buffer
	framer := http2.NewFramer(&frames, nil)
	for _, write := range []func() error{
		func() error {
			return framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 7})
		},
		func() error { return framer.WriteSettingsAck() },
		func() error {
			return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 30)})
		},
		func() error { return framer.WriteContinuation(1, true, make([]byte, 5)) },
		func() error { return framer.WriteData(1, true, make([]byte, 100)) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	// Where a frame may be put in between: after each but the headers that go on.
	between := map[int]bool{0: true}
	ends, offset := []int{9 + 6, 9, 9 + 30, 9 + 5, 9 + 100}, 0
	for i, size := range ends {
		offset += size
		between[offset] = i != 2
	}
	for size := 1; size <= frames.Len(); size++ {
		c, all := &conn{}, frames.Bytes()
		for at := 0; at < len(all); {
			n := min(size, len(all)-at)
			c.followLocked(all[at : at+n])
			at += n
			if got := c.betweenLocked(); got != between[at] {
				t.Fatalf("in pieces of %d, after %d bytes: between frames %t, want %t", size, at, got, between[at])
			}
			if c.answered != (at >= 9+6+9+9) {
				t.Fatalf("in pieces of %d, after %d bytes: answered %t", size, at, c.answered)
			}
		}
	}
}
