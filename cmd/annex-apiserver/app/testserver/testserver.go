// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testserver starts annex-apiserver inside the process of a test.
package testserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app"
	"github.com/kubeannex/annex/cmd/annex-apiserver/app/options"
	"github.com/kubeannex/annex/pkg/features"
)

// startTimeout is how long a server may take to become ready. It covers a race-instrumented binary on a busy machine.
const startTimeout = 2 * time.Minute

// Server is a running annex-apiserver.
type Server struct {
	*app.Instance
	// ClientConfig is a privileged client of the server.
	ClientConfig *rest.Config
	// Options are what the server was started with.
	Options options.CompletedOptions

	cancel context.CancelFunc
	served chan error
}

// Start starts a server with the given flags on a free port of the loopback
// interface and waits until it is ready. The caller must Stop it.
//
// Feature gates are state of the process: a flag that sets one is refused,
// unless the test has set the process's own to the same value
// (k8s.io/component-base/featuregate/testing).
func Start(ctx context.Context, flags ...string) (*Server, error) {
	return start(ctx, "/readyz", flags)
}

// StartStandalone starts a standalone server for one test. It works in a
// directory of its own, with a path short enough for the socket of an embedded
// etcd, and stops when the test ends.
func StartStandalone(tb testing.TB, flags ...string) *Server {
	tb.Helper()
	server, err := Start(tb.Context(), append([]string{"--standalone", "--root-dir=" + ShortTempDir(tb)}, flags...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return server
}

// ShortTempDir is a directory for one test whose path leaves room for the name of a socket.
func ShortTempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "annex-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// StartExcept is Start, but some checks of readiness are not waited for: those
// that cannot pass, such as informer-sync when --kubeconfig names a cluster that does not exist.
func StartExcept(ctx context.Context, checks []string, flags ...string) (*Server, error) {
	return start(ctx, "/readyz?exclude="+strings.Join(checks, "&exclude="), flags)
}

// featureGatesVariable names feature gates in the environment that every server is started with, see test/env.
const featureGatesVariable = "ANNEX_FEATURE_GATES"

func start(ctx context.Context, readyURI string, flags []string) (*Server, error) {
	if gates := os.Getenv(featureGatesVariable); gates != "" { //nolint:forbidigo // only tests use this package
		flags = append([]string{"--feature-gates=" + gates}, flags...)
	}
	opts := options.NewOptions()
	gates, err := isolateFeatureGates(opts)
	if err != nil {
		return nil, err
	}
	fs := pflag.NewFlagSet("annex-apiserver", pflag.ContinueOnError)
	sections := opts.Flags()
	for _, section := range sections.FlagSets {
		fs.AddFlagSet(section)
	}
	if err := fs.Parse(flags); err != nil {
		return nil, fmt.Errorf("parsing flags: %w", err)
	}
	if err := gates.apply(); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	opts.SecureServing.Listener = listener
	completed, err := opts.Complete()
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	instance, err := app.Start(ctx, completed)
	if err != nil {
		return nil, err
	}
	// The server outlives a test's context: Stop ends it, so that the test can look at the shutdown.
	serveCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	server := &Server{
		Instance:     instance,
		ClientConfig: rest.CopyConfig(instance.Server.GenericAPIServer.LoopbackClientConfig),
		Options:      completed,
		cancel:       cancel,
		served:       make(chan error, 1),
	}
	server.ClientConfig.QPS, server.ClientConfig.Burst = -1, -1
	go func() { server.served <- instance.Serve(serveCtx) }()
	if err := server.waitReady(ctx, readyURI); err != nil {
		return nil, utilerrors.NewAggregate([]error{err, server.Stop()})
	}
	return server, nil
}

// isolatedGates are feature gates of one server, so that servers can start beside each other.
type isolatedGates struct {
	registry basecompatibility.ComponentGlobalsRegistry
	gate     featuregate.MutableVersionedFeatureGate
}

func isolateFeatureGates(opts *options.Options) (isolatedGates, error) {
	gates := isolatedGates{
		registry: basecompatibility.NewComponentGlobalsRegistry(),
		gate:     utilfeature.DefaultMutableFeatureGate.DeepCopy(),
	}
	version := compatibility.DefaultKubeEffectiveVersionForTest()
	version.SetEmulationVersion(gates.gate.EmulationVersion())
	opts.ServerRun.ComponentGlobalsRegistry = gates.registry
	return gates, gates.registry.Register(opts.ServerRun.ComponentName, version, gates.gate)
}

// apply evaluates the flags. Code that reads the process's gates would not see a difference, so there must be none,
// but in gates of our own, which nothing reads there.
func (g isolatedGates) apply() error {
	if err := g.registry.Set(); err != nil {
		return fmt.Errorf("setting feature gates: %w", err)
	}
	own := features.Gates()
	for name := range g.gate.GetAll() {
		if _, ok := own[name]; !ok && g.gate.Enabled(name) != utilfeature.DefaultFeatureGate.Enabled(name) {
			return fmt.Errorf("feature gate %s differs from the process's: set that first", name)
		}
	}
	return nil
}

func (s *Server) waitReady(ctx context.Context, uri string) error {
	client, err := kubernetes.NewForConfig(s.ClientConfig)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-s.served:
			s.served <- err // Stop reads it
			return false, fmt.Errorf("server ended before it was ready: %w", err)
		default:
		}
		var body []byte
		body, last = client.Discovery().RESTClient().Get().RequestURI(uri).Do(ctx).Raw()
		if last != nil {
			last = fmt.Errorf("%w: %s", last, body)
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until the server is ready: %w (last answer: %w)", err, last)
	}
	return nil
}

// Stop ends the server as a termination signal does, and waits until it and
// its etcd are gone. Further calls do nothing.
func (s *Server) Stop() error {
	s.cancel()
	served, ok := <-s.served
	if !ok {
		return nil
	}
	close(s.served)
	return utilerrors.NewAggregate([]error{served, s.Close()})
}
