// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// TestJSONLogOfFailure demands that the reason of a failed start is an entry of the log, and the only one.
func TestJSONLogOfFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), refusalTimeout)
	defer cancel()
	cmd, output := serverCommand(ctx, "--logging-format=json", "--standalone", "--kubeconfig=x")
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Fatalf("got %v, want exit code 1; output:\n%s", err, output)
	}
	var messages []string
	for line := range strings.Lines(output.String()) {
		if strings.HasSuffix(line, "Data race detection enabled\n") { // said by test binaries only, before there are flags
			continue
		}
		entry := struct {
			Message string `json:"msg"`
			Err     string `json:"err"`
		}{}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("no entry of a log: %v: %s", err, line)
		}
		messages = append(messages, entry.Message)
		assertContains(t, entry.Err, []string{"--standalone and --kubeconfig contradict each other", "drop one"})
	}
	if diff := cmp.Diff([]string{"annex-apiserver failed"}, messages); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}
