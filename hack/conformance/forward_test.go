// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForwarder lets two clients talk to an echo server on a socket, one that hangs up and one that is cut off.
func TestForwarder(t *testing.T) {
	dir, err := os.MkdirTemp("", "forward") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // left to the system
	server, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "echo"))
	if err != nil {
		t.Fatal(err)
	}
	var listener io.Closer = server
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := server.Accept()
			if err != nil {
				return
			}
			go io.Copy(connection, connection) //nolint:errcheck // ends with the connection
		}
	}()

	f, err := startForwarder(t.Context(), filepath.Join(dir, "echo"))
	if err != nil {
		t.Fatal(err)
	}
	dial := func() (io.Closer, *bufio.Reader) {
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(client)
		if _, err := io.WriteString(client, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := reader.ReadString('\n'); err != nil || line != "hello\n" {
			t.Fatalf("got %q, %v, want the line that was sent", line, err)
		}
		return client, reader
	}
	first, _ := dial()
	first.Close()
	second, reader := dial()
	defer second.Close()
	if err := f.close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	if _, err := reader.ReadByte(); err == nil {
		t.Error("the connection outlives the forwarder")
	}
}
