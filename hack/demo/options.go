// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/kubeannex/annex/test/env"
)

// options are the flags of the demonstration.
type options struct {
	workflows int
	reports   int
	seed      uint64
	timeout   time.Duration
	readme    string
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.IntVar(&o.workflows, "workflows", 3000, "How many workflows the cluster has.")
	flags.IntVar(&o.reports, "reports", 3000, "How many policy reports the cluster has.")
	flags.Uint64Var(&o.seed, "seed", 1, "What the content of the objects is made up from.")
	flags.DurationVar(&o.timeout, "timeout", 15*time.Minute, "After how long to give up.")
	flags.StringVar(&o.readme, "readme", "", "A Markdown file: fail when the transcript of the demonstration in it is not what was printed.")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.workflows < busyWorkflows || o.reports < changedReports {
		return o, fmt.Errorf("at least %d workflows and %d reports are needed", busyWorkflows, changedReports)
	}
	return o, nil
}

// run is the whole demonstration. The files of its processes are removed when it
// succeeds or is interrupted.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "annex-demo-")
	if err != nil {
		return fmt.Errorf("creating a folder: %w", err)
	}
	e, err := env.New(dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	var printed bytes.Buffer
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	d := &demo{options: o, env: e, dir: dir, out: io.MultiWriter(out, &printed)}
	err = d.play(limited)
	if closeErr := e.Close(); err == nil { //nolint:contextcheck // the processes have to end after ctx is done, too
		err = closeErr
	}
	switch {
	case ctx.Err() != nil:
		return errors.Join(errors.New("interrupted, all processes are ended"), os.RemoveAll(dir))
	case err != nil:
		return fmt.Errorf("%w (logs: %s)", err, filepath.Join(dir, "*.log"))
	case o.readme != "":
		err = checkTranscript(o.readme, printed.String())
	}
	return errors.Join(err, os.RemoveAll(dir))
}
