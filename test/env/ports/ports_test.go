// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"net"
	"testing"
)

func TestPortsAreDistinct(t *testing.T) {
	first, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release() //nolint:errcheck // nothing depends on it
	second, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Release() //nolint:errcheck // nothing depends on it
	seen := map[int]bool{}
	for _, r := range []*Range{first, second, first, second} {
		port, err := r.Take()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Errorf("port %d is handed out twice", port)
		}
		seen[port] = true
	}
	busy, err := net.Listen("tcp", Address(first.next))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close() //nolint:errcheck // nothing depends on it
	port, err := first.Take()
	if err != nil {
		t.Fatal(err)
	}
	if Address(port) == busy.Addr().String() {
		t.Errorf("port %d is handed out while something listens on it", port)
	}
}

// TestFreePortsComeBack takes more ports than a range has.
func TestFreePortsComeBack(t *testing.T) {
	kept := Free(t)
	for range 2 * perRange {
		t.Run("user", func(t *testing.T) {
			if port := Free(t); port == kept {
				t.Errorf("Free() = %d, which another test has", port)
			}
		})
	}
}
