// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/kubeannex/annex/test/env"
)

// testTimeout bounds every test of this package.
const testTimeout = 10 * time.Minute

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	// cluster serves the definitions itself and is the judge of annex.
	cluster *env.Host
	// host and annex are the two servers as clients see them.
	host, annex *server
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

// setup starts a cluster and an annex that delegates to it. Annex runs with a
// host, and not alone, because only then both servers have the same admission
// chain over the same namespaces, and because etcd is a process of its own on
// both sides, so that the memory of the two can be compared. The tests speak to
// annex past the host: they define the same kinds in both, so no group of the
// host can point to annex.
func setup(ctx context.Context, e *env.Env) (err error) {
	if suite.cluster, err = e.StartHost(ctx, env.HostOptions{}); err != nil {
		return err
	}
	annex, err := e.StartAnnex(ctx, env.AnnexOptions{Host: suite.cluster})
	if err != nil {
		return err
	}
	config, err := suite.cluster.AdminConfig()
	if err != nil {
		return err
	}
	kubectl, err := suite.cluster.Kubectl()
	if err != nil {
		return err
	}
	if suite.host, err = newServer("host", config, suite.cluster.APIServers[0].Process, kubectl); err != nil {
		return err
	}
	if config, err = annex.AdminConfig(0); err != nil {
		return err
	}
	if kubectl, err = annex.Kubectl(0); err != nil {
		return err
	}
	suite.annex, err = newServer("annex", config, annex.Replicas[0].Process, kubectl)
	return err
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}
