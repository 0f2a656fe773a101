// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ports hands out loopback ports to the servers of tests.
//
// A port of the kernel's choice is free when it is asked for and may be taken when a
// server listens on it: by another server of a test, or by any outgoing connection. The
// ports of this package are below the range from which Linux picks the local port of a
// connection (32768 and up), and one test process has them for itself.
package ports

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
)

const (
	first    = 20000
	end      = 32000
	perRange = 200
)

// Range hands out ports that no other test process hands out: its first port stays
// bound for as long as the range is in use.
type Range struct {
	lock net.Listener
	base int

	mu   sync.Mutex
	next int
	// returned are ports that were taken and given back.
	returned []int
}

// Reserve takes the first free range. The caller releases it.
func Reserve() (*Range, error) {
	for base := first; base+perRange <= end; base += perRange {
		lock, err := net.Listen("tcp", Address(base))
		if err == nil {
			return &Range{lock: lock, base: base, next: base + 1}, nil
		}
	}
	return nil, fmt.Errorf("no free range of ports between %d and %d: end other test runs on this machine", first, end)
}

// Number tells the ranges that are in use apart. It counts from 0.
func (r *Range) Number() int { return (r.base - first) / perRange }

// Take returns a port that nothing listens on and that nobody else has from this
// range. A server keeps its port over restarts.
func (r *Range) Take() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		port, ok := r.candidateLocked()
		if !ok {
			return 0, fmt.Errorf("all %d ports of this test process are in use: use fewer servers or share them through Main", perRange)
		}
		probe, err := net.Listen("tcp", Address(port))
		if err != nil {
			continue
		}
		if err := probe.Close(); err != nil {
			return 0, fmt.Errorf("closing the probe of port %d: %w", port, err)
		}
		return port, nil
	}
}

// candidateLocked prefers ports that were never used.
func (r *Range) candidateLocked() (int, bool) {
	if r.next < r.base+perRange {
		r.next++
		return r.next - 1, true
	}
	if len(r.returned) == 0 {
		return 0, false
	}
	port := r.returned[0]
	r.returned = r.returned[1:]
	return port, true
}

// giveBack lets a port be taken again.
func (r *Range) giveBack(port int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.returned = append(r.returned, port)
}

// Release ends the use of the range.
func (r *Range) Release() error {
	return r.lock.Close()
}

// Address is that of a port of the loopback interface.
func Address(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// ofProcess is the range of Free. It lives as long as the process.
var ofProcess = sync.OnceValues(Reserve)

// Free returns a port of the loopback interface for the servers of a test, which
// has it until it ends.
func Free(tb testing.TB) int {
	tb.Helper()
	r, err := ofProcess()
	if err != nil {
		tb.Fatal(err)
	}
	port, err := r.Take()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { r.giveBack(port) })
	return port
}

// FreeAddress is Free with the address of the loopback interface.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	return Address(Free(tb))
}
