// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/pkg/features"
)

const (
	// setupTimeout bounds the start of everything and the first objects.
	setupTimeout = 5 * time.Minute
	// requestTimeout bounds one request, watches included.
	requestTimeout = time.Minute
	pollInterval   = 20 * time.Millisecond
)

// side is one of the two servers.
type side struct {
	name   string
	server *testserver.Server
	client *http.Client
	// auditLog is where the server writes what it was asked.
	auditLog string
}

// world is both servers and their etcd.
type world struct {
	dir            string
	etcd           *embedded.Server
	client         *clientv3.Client
	compact, plain *side
	// before is a revision before all caches and objects, early one before the caches of the compact server
	// when there were objects, and history one when all caches had begun.
	before, early, history int64
}

// shared is the world that all tests of the package look at. TestMain writes it.
var shared *world

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	// The directory of etcd holds a unix socket, whose path has to be short.
	dir, err := os.MkdirTemp("", "annex-cc-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of the system's for temporary files
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	shared = &world{dir: dir}
	if err := shared.setup(ctx); err != nil {
		return 1, errors.Join(fmt.Errorf("preparing the objects: %w", err), shared.close())
	}
	code = m.Run()
	return code, shared.close()
}

// setup starts the plain server, which makes the definitions and the first objects, and
// then the compact one: each cache has objects that it read from a list and objects
// that it heard of by events.
func (w *world) setup(ctx context.Context) (err error) {
	if w.etcd, err = embedded.Start(ctx, embedded.Options{RootDir: filepath.Join(w.dir, "etcd")}); err != nil {
		return err
	}
	if w.client, err = clientv3.New(clientv3.Config{Endpoints: w.etcd.Endpoints(), DialTimeout: 10 * time.Second}); err != nil {
		return fmt.Errorf("making a client of etcd: %w", err)
	}
	if w.plain, err = w.startSide(ctx, "plain", false); err != nil {
		return err
	}
	w.before = w.etcd.Revision()
	if err := w.installDefinitions(ctx); err != nil {
		return err
	}
	if err := w.settle(ctx, w.plain); err != nil {
		return err
	}
	if err := w.createAll(ctx, w.plain, firstObjects()); err != nil {
		return err
	}
	w.early = w.etcd.Revision()
	if w.compact, err = w.startSide(ctx, "compact", true); err != nil {
		return err
	}
	if err := w.settle(ctx, w.plain, w.compact); err != nil {
		return err
	}
	w.history = w.etcd.Revision()
	if err := w.createAll(ctx, w.compact, laterObjects()); err != nil {
		return err
	}
	return w.settle(ctx, w.plain, w.compact)
}

// startSide starts a server.
func (w *world) startSide(ctx context.Context, name string, compact bool) (*side, error) {
	s := &side{name: name, auditLog: filepath.Join(w.dir, name+"-audit.log")}
	policy, err := w.writeAuditPolicy()
	if err != nil {
		return nil, err
	}
	flags := []string{
		"--standalone", "--root-dir=" + filepath.Join(w.dir, name), "--etcd-servers=" + w.etcd.Endpoints()[0], "--etcd-compaction-interval=0",
		"--audit-policy-file=" + policy, "--audit-log-path=" + s.auditLog, "--audit-log-format=json",
		fmt.Sprintf("--feature-gates=%s=%t", features.CompactCache, compact),
	}
	if s.server, err = testserver.Start(ctx, flags...); err != nil {
		return nil, fmt.Errorf("starting the %s server: %w", name, err)
	}
	if got := s.server.Config.ExtraConfig.CompactCache; got != compact {
		return s, fmt.Errorf("the cache of the %s server is compact: %t, want %t", name, got, compact)
	}
	config := rest.CopyConfig(s.server.ClientConfig)
	config.DisableCompression = true
	config.Timeout = requestTimeout
	config.UserAgent = "differ"
	if s.client, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return s, nil
}

func (w *world) sides() []*side { return []*side{w.plain, w.compact} }

func (w *world) close() error {
	var errs []error
	for _, s := range w.sides() {
		if s != nil && s.client != nil {
			s.client.CloseIdleConnections()
		}
		if s != nil && s.server != nil {
			errs = append(errs, s.server.Stop())
		}
	}
	if w.client != nil {
		errs = append(errs, w.client.Close())
	}
	if w.etcd != nil {
		errs = append(errs, w.etcd.Close())
	}
	return errors.Join(errs...)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
