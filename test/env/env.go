// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kubeannex/annex/test/env/ports"
)

// StartTimeout bounds the setup of Main and is a fair bound for a test that
// starts servers: a host takes about ten seconds on two idle cores, several
// times that on busy ones.
const StartTimeout = 5 * time.Minute

// tailLines is how much of each log is printed when a test fails.
const tailLines = 40

// Env owns a folder, a range of ports and the processes started through it.
type Env struct {
	root  string
	dir   string
	ports *ports.Range

	mu        sync.Mutex
	processes []*Process
	closers   []io.Closer
	names     map[string]int
}

// New makes an Env that keeps all files of its processes below dir. The caller
// owns it and must call Close, which ends every process.
func New(dir string) (*Env, error) {
	root, err := RepositoryRoot()
	if err != nil {
		return nil, err
	}
	reserved, err := ports.Reserve()
	if err != nil {
		return nil, err
	}
	return &Env{root: root, dir: dir, ports: reserved, names: map[string]int{}}, nil
}

// ForTest makes an Env that lives as long as the test. When the test fails the
// ends of all logs are printed.
func ForTest(tb testing.TB) *Env {
	tb.Helper()
	e, err := New(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			e.PrintLogs(tb.Output())
		}
		if err := e.Close(); err != nil {
			tb.Errorf("ending the environment: %v", err)
		}
	})
	return e
}

// Runner is the part of testing.M that Main needs.
type Runner interface {
	Run() int
}

// Main runs setup once, then all tests of a package, then ends every process.
// It returns the exit code: func TestMain(m *testing.M) { os.Exit(env.Main(m, setup)) }.
// Setup keeps what the tests share. With ANNEX_KEEP_ENV set in the environment the
// folder with data and logs is left in place and its path is printed.
func Main(m Runner, setup func(context.Context, *Env) error) int {
	code, err := runMain(m, setup)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func runMain(m Runner, setup func(context.Context, *Env) error) (code int, err error) {
	dir, err := os.MkdirTemp("", "annex-env-")
	if err != nil {
		return 1, fmt.Errorf("creating the folder of the environment: %w", err)
	}
	defer func() {
		if os.Getenv("ANNEX_KEEP_ENV") != "" {
			fmt.Fprintf(os.Stderr, "environment kept in %s\n", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	e, err := New(dir)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()

	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	if err := setup(ctx, e); err != nil {
		e.PrintLogs(os.Stderr)
		return 1, fmt.Errorf("starting the environment: %w", err)
	}
	if code = m.Run(); code != 0 {
		e.PrintLogs(os.Stderr)
	}
	return code, nil
}

// Close kills every process, last started first, and frees the ports.
func (e *Env) Close() error {
	e.mu.Lock()
	processes, closers := e.processes, e.closers
	e.processes, e.closers = nil, nil
	e.mu.Unlock()

	var errs []error
	for _, closer := range slices.Backward(closers) {
		errs = append(errs, closer.Close())
	}
	for _, process := range slices.Backward(processes) {
		errs = append(errs, process.Kill())
	}
	errs = append(errs, e.ports.Release())
	return errors.Join(errs...)
}

// PrintLogs writes the end of the log of every process.
func (e *Env) PrintLogs(w io.Writer) {
	e.mu.Lock()
	processes := e.processes
	e.mu.Unlock()
	for _, p := range processes {
		if _, err := fmt.Fprintf(w, "--- last lines of %s\n%s\n", p.Name(), p.Tail(tailLines)); err != nil {
			return
		}
	}
}

// mkdir creates a folder below the folder of the environment. A name that is
// taken gets a number, so that two hosts or two annexes can live side by side.
func (e *Env) mkdir(name string) (string, error) {
	dir := filepath.Join(e.dir, e.uniqueName(name+"-files"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating a folder: %w", err)
	}
	return dir, nil
}

func (e *Env) uniqueName(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names[name]++
	if n := e.names[name]; n > 1 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}

// closeWith makes Close also close c, before it kills the processes.
func (e *Env) closeWith(c io.Closer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closers = append(e.closers, c)
}
