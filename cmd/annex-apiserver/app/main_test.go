// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/kubeannex/annex/pkg/command"
)

// runAsServer makes the test binary behave as annex-apiserver, so that a test
// sees what an operator sees: the exit code and the output of a process.
const runAsServer = "ANNEX_TEST_RUN_AS_SERVER"

// refusalTimeout bounds a start that is expected to fail. An unreachable etcd alone is waited for 10 seconds.
const refusalTimeout = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(runAsServer) != "" {
		os.Exit(command.Execute(NewServerCommand(genericapiserver.SetupSignalContext()), os.Stderr))
	}
	os.Exit(m.Run())
}

// output is what a process has printed so far.
type output struct {
	lock    sync.Mutex
	content bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.content.Write(p)
}

func (o *output) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.content.String()
}

func serverCommand(ctx context.Context, args ...string) (*exec.Cmd, *output) {
	output := &output{}
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	// No cluster may be found by accident.
	cmd.Env = append(os.Environ(), runAsServer+"=1", "KUBERNETES_SERVICE_HOST=", "KUBERNETES_SERVICE_PORT=")
	cmd.Stdout, cmd.Stderr = output, output
	return cmd, output
}

// runRefused runs a server that must refuse to start and returns the only line that it prints.
func runRefused(t *testing.T, args ...string) string {
	t.Helper()
	lines := runFailed(t, args...)
	if len(lines) != 1 {
		t.Errorf("got %d lines, want one:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	return lines[len(lines)-1]
}

// runFailed runs a server that must end by itself and returns what it prints, the reason last.
func runFailed(t *testing.T, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), refusalTimeout)
	defer cancel()
	cmd, output := serverCommand(ctx, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("got %v, want exit code 1; output:\n%s", err, output)
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(output.String()), "\n"), func(line string) bool {
		return strings.HasSuffix(line, "Data race detection enabled") // said by test binaries only
	})
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, "annex-apiserver: ") {
		t.Errorf("last line is not the reason: %q", last)
	}
	for _, trace := range []string{"goroutine ", "panic:", "runtime error"} {
		if strings.Contains(output.String(), trace) {
			t.Errorf("output holds a stack trace:\n%s", output)
		}
	}
	return lines
}
