// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
)

// setupTimeout bounds the two starts of the server and the writes between them.
const setupTimeout = 5 * time.Minute

var update = flag.Bool("update", false, "write the tables of docs/list-watch.md instead of comparing them")

// shared is the world that all tests of the package look at. TestMain writes it.
var shared *World

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	// The root directory holds a unix socket, whose path has to be short.
	dir, err := os.MkdirTemp("", "annex-lw-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of the system's for temporary files
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	start := func(ctx context.Context) (*Running, error) { return startAnnex(ctx, dir) }
	if shared, err = NewWorld(ctx, start, Variant{OwnTypes: true}); err != nil {
		return 1, fmt.Errorf("preparing the objects: %w", err)
	}
	code = m.Run()
	if err := shared.Close(); err != nil {
		return 1, fmt.Errorf("stopping the server: %w", err)
	}
	return code, nil
}

// startAnnex starts a standalone server in this process.
func startAnnex(ctx context.Context, dir string) (*Running, error) {
	server, err := testserver.Start(ctx, "--standalone", "--root-dir="+dir)
	if err != nil {
		return nil, err
	}
	return &Running{
		Config: server.ClientConfig,
		Etcd:   server.Options.Etcd.Generic.StorageConfig.Transport.ServerList,
		Counts: server.Config.ExtraConfig.StorageMetrics.Counts,
		Stop:   server.Stop,
	}, nil
}

func TestGet(t *testing.T) { CheckGet(t, shared) }

func TestList(t *testing.T) { CheckList(t, shared) }

func TestWatch(t *testing.T) { CheckWatch(t, shared) }
