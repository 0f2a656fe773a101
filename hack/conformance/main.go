// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command conformance runs upstream's CustomResourceDefinition suite, which hack/conformance.sh has
// built against annex, over one embedded etcd. It fails unless every test that the suite has did
// either pass or is listed in excluded.txt with a reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/kubeannex/annex/pkg/etcd/embedded"
)

// etcdURLVariable is where upstream's integration tests look for their etcd.
const etcdURLVariable = "KUBE_INTEGRATION_ETCD_URL"

type options struct {
	suite    string
	copied   string
	binaries string
	excluded string
	run      string
	timeout  time.Duration
	shards   int
}

func main() {
	var o options
	flag.StringVar(&o.suite, "suite", "", "folder of the suite as upstream published it")
	flag.StringVar(&o.copied, "copy", "", "folder of the copy of the suite in which the tests are run")
	flag.StringVar(&o.binaries, "binaries", "", "folder of the built test binaries; logs are written beside them")
	flag.StringVar(&o.excluded, "excluded", "", "file of the tests that are left out, with reasons")
	flag.StringVar(&o.run, "run", "", "run only the tests that match this pattern; the others are not missed")
	flag.DurationVar(&o.timeout, "timeout", 30*time.Minute, "time limit of one package")
	flag.IntVar(&o.shards, "shards", 3, "number of processes among which the tests of a package are divided")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.runSuite(ctx, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "conformance: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// runSuite returns an error when anything but success can be said of the suite.
func (o options) runSuite(ctx context.Context, out io.Writer) (err error) {
	start := time.Now()
	excluded, err := readExclusions(o.excluded)
	if err != nil {
		return err
	}
	packages, err := findPackages(o.suite)
	if err != nil {
		return err
	}
	if err := excluded.checkKnown(packages); err != nil {
		return err
	}
	etcd, closeEtcd, err := startEtcd(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeEtcd()) }()

	r := runner{
		options:     o,
		skip:        excluded.pattern(),
		environment: append(os.Environ(), etcdURLVariable+"="+etcd),
		out:         &synchronizedWriter{writer: out},
	}
	seen, err := r.runPackages(ctx, packages)
	if err != nil {
		return err
	}
	all := &summary{}
	for i, p := range packages {
		s := summarize(p, seen[i], excluded, o.run != "")
		fmt.Fprintf(out, "%s: %s\n", p.importPath(), s)
		all.add(s)
	}
	for _, problem := range all.problems {
		fmt.Fprintln(out, problem)
	}
	fmt.Fprintf(out, "conformance: %s in %s\n", all, time.Since(start).Round(time.Second))
	if len(all.problems) != 0 {
		return fmt.Errorf("%d problems, see above and the logs in %s", len(all.problems), o.binaries)
	}
	return nil
}

// startEtcd runs an etcd as annex embeds it, born at revision 2^50, with a port of the loopback interface
// before its socket.
func startEtcd(ctx context.Context) (url string, closeEtcd func() error, err error) {
	dir, err := os.MkdirTemp("", "annex-conformance-")
	if err != nil {
		return "", nil, fmt.Errorf("creating a directory for etcd: %w", err)
	}
	server, err := embedded.Start(ctx, embedded.Options{RootDir: dir})
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	port, err := startForwarder(ctx, strings.TrimPrefix(server.Endpoints()[0], "unix://"))
	if err != nil {
		return "", nil, errors.Join(err, server.Close(), os.RemoveAll(dir))
	}
	return port.url(), func() error {
		return errors.Join(port.close(), server.Close(), os.RemoveAll(dir))
	}, nil
}
