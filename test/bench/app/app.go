// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the command of the benchmark: flags, order of the run, output.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/memserver"
	"github.com/kubeannex/annex/test/bench/report"
	"github.com/kubeannex/annex/test/bench/scenario"
	"github.com/kubeannex/annex/test/env"
)

// Main is the whole program: the results go to out, what happens to progress.
func Main(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) == 3 && args[0] == memserver.Command {
		return memserver.Run(ctx, args[1], args[2])
	}
	options, err := Parse(args, progress)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if options.Publish {
		return publish(options.Output)
	}
	return Run(ctx, options, out, progress)
}

// publish writes the report of the last run into the documentation.
func publish(output string) error {
	root, err := env.RepositoryRoot()
	if err != nil {
		return err
	}
	last, err := report.Read(output)
	if err != nil {
		return err
	}
	if err := checkComplete(last.Results); err != nil {
		return fmt.Errorf("the report is not published, run the benchmark with all scenarios: %w", err)
	}
	return last.Publish(root)
}

// run is one run of the benchmark.
type run struct {
	*Options

	env      *env.Env
	cluster  *cluster.Cluster
	out      io.Writer
	progress io.Writer
	begin    time.Time
	results  []report.Result
	// incomplete says why results are missing and which. It is empty when none are.
	incomplete string

	// start makes the cluster ready to be measured, versions names the programs.
	start    func(ctx context.Context) error
	versions func(ctx context.Context) ([]report.Item, error)
}

// Run runs the benchmark. The files of its processes are removed when it succeeds
// or is interrupted, unless they are to be kept.
func Run(ctx context.Context, options *Options, out, progress io.Writer) error {
	selected := options.selected()
	if len(selected) == 0 {
		return fmt.Errorf("--scenarios=%s selects none of %s", options.Scenarios, scenarioNames())
	}
	dir, err := os.MkdirTemp("", "annex-bench-")
	if err != nil {
		return fmt.Errorf("creating a folder: %w", err)
	}
	e, err := env.New(dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	r := &run{Options: options, env: e, out: out, progress: progress, begin: time.Now()}
	r.start, r.versions = r.startCluster, r.askVersions
	limited, cancel := context.WithTimeout(ctx, options.Timeout)
	defer cancel()
	err = r.play(limited, selected)
	if closeErr := e.Close(); err == nil {
		err = closeErr
	}
	switch {
	case options.Keep:
		r.sayf("data and logs are in %s", dir)
		return err
	case ctx.Err() != nil && err != nil:
		return errors.Join(fmt.Errorf("interrupted, all processes are ended: %w", err), os.RemoveAll(dir))
	case err != nil:
		return fmt.Errorf("%w (logs: %s)", err, filepath.Join(dir, "*.log"))
	}
	return os.RemoveAll(dir)
}

// play runs the scenarios and writes the report: after an interrupt in any case, after
// another error if a scenario was measured. What was measured before is as good.
func (r *run) play(ctx context.Context, scenarios []scenario.Scenario) error {
	left, err := r.measure(ctx, scenarios)
	if err == nil {
		return r.finish(ctx)
	}
	err = fmt.Errorf("%w; not measured: %s", err, joinNames(left))
	if len(r.results) == 0 && ctx.Err() == nil {
		return err
	}
	why := "it failed"
	if ctx.Err() != nil {
		why = "it was interrupted"
	}
	r.incomplete = why + ", and has nothing of " + joinNames(left)
	return errors.Join(err, r.finish(context.WithoutCancel(ctx)))
}

// startCluster starts and fills the cluster.
func (r *run) startCluster(ctx context.Context) error {
	var err error
	r.cluster, err = cluster.Start(ctx, cluster.Options{
		Env: r.env, Sizes: r.sizes(), Kinds: []dataset.Kind{dataset.Endpoints}, Progress: r.sayf,
	})
	if err != nil {
		return err
	}
	if err := r.cluster.Fill(ctx); err != nil {
		return err
	}
	if err := r.cluster.Warm(ctx); err != nil {
		return err
	}
	return r.cluster.MeasureIdle(ctx)
}

// measure runs the scenarios. With an error it returns those that were not measured.
func (r *run) measure(ctx context.Context, scenarios []scenario.Scenario) ([]scenario.Scenario, error) {
	if err := r.start(ctx); err != nil {
		return scenarios, err
	}
	runner := &scenario.Runner{Cluster: r.cluster, Rounds: r.Rounds, Profiles: r.profiles(), Progress: r.sayf}
	if err := runner.ProfileIdle(ctx); err != nil {
		return scenarios, err
	}
	running := true
	for i, s := range scenarios {
		if _, ok := s.(scenario.Independent); ok && running {
			if err := r.cluster.Stop(); err != nil {
				return scenarios[i:], err
			}
			running = false
		}
		result, err := runner.Run(ctx, s)
		if err != nil {
			return scenarios[i:], err
		}
		results := toReport(s, result)
		r.results = append(r.results, results...)
		r.sayf("%s: took %.0f s", s.Name(), result.Duration.Seconds())
		if err := r.print(results); err != nil {
			return scenarios[i+1:], err
		}
	}
	return nil, nil
}

// print shows the results of a scenario at once.
func (r *run) print(results []report.Result) error {
	if !r.Smoke {
		return report.Table(r.progress, results)
	}
	return errors.Join(report.Table(r.progress, results), report.JSON(r.out, results))
}

// finish prints the table of all results and writes the report.
func (r *run) finish(ctx context.Context) error {
	environment, err := r.environment(ctx)
	if err != nil {
		return err
	}
	if !r.Smoke {
		if err := report.Table(r.out, r.results); err != nil {
			return err
		}
	}
	present := report.Report{Environment: environment, Results: r.results}
	folder := r.folder(present)
	if err := present.Write(folder); err != nil {
		return err
	}
	if folder != r.Output {
		r.sayf("%s has a report with more in it, which is left as it is", r.Output)
	}
	r.sayf("the report is in %s", folder)
	return nil
}

// sayf prints one line of progress with the time since the beginning.
func (r *run) sayf(format string, args ...any) {
	// Progress that nobody reads is no failure.
	_, _ = fmt.Fprintf(r.progress, "[%5.0f s] %s\n", time.Since(r.begin).Seconds(), fmt.Sprintf(format, args...))
}
