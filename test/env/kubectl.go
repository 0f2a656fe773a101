// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// kubectlGrace is how long kubectl may take to end after its context is done.
const kubectlGrace = 5 * time.Second

// Kubectl runs the real kubectl with one kubeconfig and a cache of its own.
type Kubectl struct {
	path string
	home string
	env  []string
	args []string
}

// Result is what one run of kubectl printed and returned.
type Result struct {
	Stdout   string
	Stderr   string
	ExitCode int
}

// Kubectl returns kubectl for a kubeconfig. Home folder and discovery cache are
// below the folder of the environment and shared with no other Kubectl.
func (e *Env) Kubectl(kubeconfig string) (*Kubectl, error) {
	path, err := e.Program(programKubectl)
	if err != nil {
		return nil, err
	}
	home, err := e.mkdir("kubectl")
	if err != nil {
		return nil, err
	}
	return &Kubectl{path: path, home: home, env: []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + home,
		"KUBECONFIG=" + kubeconfig,
		"KUBECACHEDIR=" + home + "/cache",
	}}, nil
}

// With returns a copy that passes more environment variables, as KEY=value.
func (k *Kubectl) With(variables ...string) *Kubectl {
	other := *k
	other.env = append(slices.Clone(k.env), variables...)
	return &other
}

// InNamespace returns a copy that works in a namespace unless told otherwise.
func (k *Kubectl) InNamespace(namespace string) *Kubectl {
	other := *k
	other.args = append(slices.Clone(k.args), "--namespace="+namespace)
	return &other
}

// ForgetDiscovery removes the cache, so that the next run sees new resources at once.
func (k *Kubectl) ForgetDiscovery() error {
	if err := os.RemoveAll(k.home + "/cache"); err != nil {
		return fmt.Errorf("removing the cache of kubectl: %w", err)
	}
	return nil
}

// Run runs kubectl to its end. An exit code other than 0 is no error; an error
// means that kubectl could not run or that ctx ended it.
func (k *Kubectl) Run(ctx context.Context, args ...string) (Result, error) {
	return k.RunInput(ctx, "", args...)
}

// RunInput is Run with standard input.
func (k *Kubectl) RunInput(ctx context.Context, stdin string, args ...string) (Result, error) {
	cmd := k.command(ctx, args)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	result := Result{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if ctx.Err() != nil || (err != nil && !errors.As(err, &exit)) {
		return result, fmt.Errorf("running kubectl %s: %w (stderr: %s)", strings.Join(args, " "), errors.Join(err, context.Cause(ctx)), result.Stderr)
	}
	return result, nil
}

// MustRun runs kubectl and ends the test unless it exits with 0. It returns what was printed.
func (k *Kubectl) MustRun(tb testing.TB, args ...string) string {
	tb.Helper()
	return k.MustRunInput(tb, "", args...)
}

// MustRunInput is MustRun with standard input.
func (k *Kubectl) MustRunInput(tb testing.TB, stdin string, args ...string) string {
	tb.Helper()
	result, err := k.RunInput(tb.Context(), stdin, args...)
	if err != nil {
		tb.Fatal(err)
	}
	if result.ExitCode != 0 {
		tb.Fatalf("kubectl %s: exit code %d\n%s%s", strings.Join(args, " "), result.ExitCode, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

func (k *Kubectl) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.path, append(slices.Clone(k.args), args...)...)
	cmd.Env = k.env
	cmd.Dir = k.home
	cmd.WaitDelay = kubectlGrace
	return cmd
}

// Stream is a running kubectl whose output is read line by line.
type Stream struct {
	lines  chan string
	done   chan struct{}
	cancel context.CancelFunc
	stderr bytes.Buffer
	err    error
}

// Stream starts kubectl, for example "get -w", and returns at once. It runs
// until Close or the end of ctx.
func (k *Kubectl) Stream(ctx context.Context, args ...string) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := k.command(ctx, args)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, fmt.Errorf("reading from kubectl: %w", err)
	}
	s := &Stream{lines: make(chan string), done: make(chan struct{}), cancel: cancel}
	cmd.Stderr = &s.stderr
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("starting kubectl %s: %w", strings.Join(args, " "), err)
	}
	go func() {
		defer close(s.done)
		s.forward(ctx, stdout)
		s.err = cmd.Wait()
	}()
	return s, nil
}

func (s *Stream) forward(ctx context.Context, stdout io.Reader) {
	defer close(s.lines)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		select {
		case s.lines <- lines.Text():
		case <-ctx.Done():
			return
		}
	}
}

// Next returns the next line, or an error when kubectl or ctx ends first.
func (s *Stream) Next(ctx context.Context) (string, error) {
	select {
	case line, ok := <-s.lines:
		if ok {
			return line, nil
		}
		<-s.done
		return "", fmt.Errorf("kubectl ended: %w (stderr: %s)", errors.Join(s.err, io.EOF), s.stderr.String())
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for a line of kubectl: %w", context.Cause(ctx))
	}
}

// Take returns the next n lines.
func (s *Stream) Take(ctx context.Context, n int) ([]string, error) {
	lines := make([]string, 0, n)
	for range n {
		line, err := s.Next(ctx)
		if err != nil {
			return lines, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// Close ends kubectl and waits for its end.
func (s *Stream) Close() {
	s.cancel()
	<-s.done
}
