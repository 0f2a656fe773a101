// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Ports are taken below the range from which Linux picks the local port of an
// outgoing connection (32768 and up), so no client can take one between the
// check and the start of a server.
const (
	firstPort     = 20000
	endPort       = 32000
	portsPerRange = 200
)

// portRange hands out loopback ports that no other test process hands out: the
// first port of the range stays bound for as long as the range is in use.
type portRange struct {
	lock net.Listener
	base int

	mu   sync.Mutex
	next int
	end  int
}

// reservePorts takes the first free range.
func reservePorts() (*portRange, error) {
	for base := firstPort; base+portsPerRange <= endPort; base += portsPerRange {
		lock, err := net.Listen("tcp", loopback(base))
		if err == nil {
			return &portRange{lock: lock, base: base, next: base + 1, end: base + portsPerRange}, nil
		}
	}
	return nil, fmt.Errorf("no free range of ports between %d and %d: end other test runs on this machine", firstPort, endPort)
}

// take returns a port that nothing listens on and that was never returned
// before by this range. A server keeps its port over restarts.
func (r *portRange) take() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.next < r.end {
		port := r.next
		r.next++
		probe, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		if err := probe.Close(); err != nil {
			return 0, fmt.Errorf("closing the probe of port %d: %w", port, err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("all %d ports of this test process are in use: use fewer servers or share them through Main", portsPerRange)
}

func (r *portRange) release() error {
	return r.lock.Close()
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// FreePort returns a port of the loopback interface that was free a moment ago.
func FreePort(tb testing.TB) int {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // nothing was sent
	return listener.Addr().(*net.TCPAddr).Port
}
