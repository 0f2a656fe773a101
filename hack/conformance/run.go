// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// runner runs the test binary of a package.
type runner struct {
	options

	// skip is the pattern of the excluded tests. Empty excludes none.
	skip        string
	environment []string
	// out may be written to by several goroutines.
	out io.Writer
}

// runPackages returns the results of each package, in the same order.
func (r runner) runPackages(ctx context.Context, packages []testPackage) ([]results, error) {
	all := make([]results, len(packages))
	group, ctx := errgroup.WithContext(ctx)
	for i, p := range packages {
		group.Go(func() (err error) {
			if all[i], err = r.runPackage(ctx, p); err != nil {
				return fmt.Errorf("running %s: %w", p.importPath(), err)
			}
			return nil
		})
	}
	return all, group.Wait()
}

// runPackage returns the result of every test. That some have failed is not an error. The test functions
// are spread over as many processes as there are shards: most of a test is waiting, each has a server and
// an etcd prefix of its own, but feature gates are state of the process. The output of a shard, servers
// included, goes to <binary>.<shard>.log.
func (r runner) runPackage(ctx context.Context, p testPackage) (results, error) {
	patterns := []string{r.run}
	if r.run == "" {
		patterns = shard(p.tests, r.shards)
	}
	parts := make([]results, len(patterns))
	group, ctx := errgroup.WithContext(ctx)
	for i, pattern := range patterns {
		group.Go(func() (err error) {
			parts[i], err = r.runShard(ctx, p, i, pattern)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	all := results{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all, nil
}

// shard deals the tests to at most n patterns for -test.run.
func shard(tests []string, n int) []string {
	dealt := make([][]string, max(1, min(n, len(tests))))
	for i, test := range tests {
		dealt[i%len(dealt)] = append(dealt[i%len(dealt)], regexp.QuoteMeta(test))
	}
	patterns := make([]string, len(dealt))
	for i, names := range dealt {
		patterns[i] = "^(" + strings.Join(names, "|") + ")$"
	}
	return patterns
}

func (r runner) runShard(ctx context.Context, p testPackage, number int, pattern string) (_ results, err error) {
	binary, err := filepath.Abs(filepath.Join(r.binaries, p.binary()))
	if err != nil {
		return nil, err
	}
	log, err := os.Create(fmt.Sprintf("%s.%d.log", binary, number))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()

	tests := exec.CommandContext(ctx, binary, r.arguments(pattern)...)
	tests.Dir = filepath.Join(r.copied, p.dir)
	tests.Env = r.environment
	// The conversion ends when the tests do, so it needs no end of its own. -t adds times.
	converter := exec.CommandContext(context.WithoutCancel(ctx), "go", "tool", "test2json", "-t", "-p", p.importPath())
	converter.Stderr = os.Stderr
	events, err := converter.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startPiped(tests, converter); err != nil {
		return nil, err
	}
	collected, err := collect(events, log, r.out)
	if err := errors.Join(err, converter.Wait()); err != nil {
		return nil, errors.Join(err, tests.Process.Kill(), tests.Wait())
	}
	return collected, ended(ctx, tests.Wait(), collected)
}

// startPiped starts both commands, with all output of the first as the input of the second. It starts none when it fails.
func startPiped(from, to *exec.Cmd) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("creating a pipe: %w", err)
	}
	// The processes have their own copies.
	defer reader.Close() //nolint:errcheck // nothing is written through it
	defer writer.Close() //nolint:errcheck // nothing is written through it
	from.Stdout, from.Stderr, to.Stdin = writer, writer, reader
	if err := from.Start(); err != nil {
		return fmt.Errorf("starting the tests: %w", err)
	}
	if err := to.Start(); err != nil {
		return errors.Join(fmt.Errorf("starting test2json: %w", err), from.Process.Kill(), from.Wait())
	}
	return nil
}

func (r runner) arguments(pattern string) []string {
	arguments := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + r.timeout.String(), "-test.run=" + pattern}
	if r.skip != "" {
		arguments = append(arguments, "-test.skip="+r.skip)
	}
	return arguments
}

// ended passes over the exit code that says that a test failed: the events say which.
func ended(ctx context.Context, err error, seen results) error {
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case errors.As(err, &exit) && exit.Exited() && seen.failed():
		return nil
	default:
		return err
	}
}

// synchronizedWriter lets several shards report.
type synchronizedWriter struct {
	mutex  sync.Mutex
	writer io.Writer
}

// Write writes p in one piece.
func (w *synchronizedWriter) Write(p []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.writer.Write(p)
}
