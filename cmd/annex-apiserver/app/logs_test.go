// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// TestJSONLog demands that every line is an object, also what etcd, gRPC and the standard library have to say.
func TestJSONLog(t *testing.T) {
	t.Parallel()
	server := startServer(t, filepath.Join(t.TempDir(), "root"), "--logging-format=json", "--v=2")
	stopServer(t, server)
	messages := map[string]bool{}
	for line := range strings.Lines(server.Stdout.(*output).String()) {
		if strings.HasSuffix(line, "Data race detection enabled\n") { // said by test binaries only, before there are flags
			continue
		}
		entry := struct {
			Time    float64 `json:"ts"`
			Message string  `json:"msg"`
		}{}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == 0 {
			t.Errorf("no entry of a log: %v: %s", err, line)
		}
		messages[entry.Message] = true
	}
	for _, want := range []string{"Embedded etcd is ready", "Stopping embedded etcd"} {
		if !messages[want] {
			t.Errorf("no line has the message %q", want)
		}
	}
}
