// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

const (
	testTimeout = 2 * time.Minute
	namespace   = "t"
	// delay is that between SIGTERM and the end of the Service's leading here. In a cluster it takes seconds,
	// with the balancer of the test two of its periods.
	delay = "--shutdown-delay-duration=1s"
)

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	host  *env.Host
	annex *env.Annex
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) (err error) {
	if suite.host, err = e.StartHost(ctx, env.HostOptions{}); err != nil {
		return err
	}
	cluster, err := suite.host.AdminConfig()
	if err != nil {
		return err
	}
	if err := env.EnsureNamespace(ctx, cluster, namespace); err != nil {
		return err
	}
	if suite.annex, err = e.StartAnnex(ctx, env.AnnexOptions{Host: suite.host, Replicas: 2, Args: []string{delay}}); err != nil {
		return err
	}
	direct, err := suite.annex.AdminConfig(0)
	if err != nil {
		return err
	}
	if err := env.InstallGadgets(ctx, direct); err != nil {
		return err
	}
	return suite.annex.RegisterAPIService(ctx, env.FixtureGroup, "v1")
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// adminAt is an administrator at one replica.
func adminAt(t *testing.T, replica int) *rest.Config {
	t.Helper()
	config, err := suite.annex.AdminConfig(replica)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// aggregated is an administrator at kube-apiserver.
func aggregated(t *testing.T) *rest.Config {
	t.Helper()
	config, err := suite.host.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}
