// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/env/node"
)

// testTimeout bounds every wait of this package.
const testTimeout = 5 * time.Minute

// namespace is where the release is installed, and release its name.
const (
	namespace = env.AnnexNamespace
	release   = "annex"
)

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	env     *env.Env
	host    *env.Host
	node    *node.Node
	kubectl *env.Kubectl
	admin   *rest.Config
	// kubeconfig is the administrator's.
	kubeconfig string
	helm       string
	plugin     string
	// cluster makes groups for the tests.
	cluster *scenario.Cluster
}

func TestMain(m *testing.M) { os.Exit(env.Main(m, setup)) }

func setup(ctx context.Context, e *env.Env) (err error) {
	suite.env = e
	if suite.helm, err = e.Program("helm"); err != nil {
		return err
	}
	programs, err := e.BuildStatic(context.WithoutCancel(ctx), ".", "./cmd/annex-apiserver", "./cmd/annex-controller", "./cmd/kubectl-annex")
	if err != nil {
		return err
	}
	etcd, err := e.BuildStatic(context.WithoutCancel(ctx), "hack/kubernetes", "go.etcd.io/etcd/server/v3")
	if err != nil {
		return err
	}
	maps.Copy(programs, etcd)
	suite.plugin = programs["kubectl-annex"]
	if suite.host, err = e.StartHost(ctx, env.HostOptions{LoopbackServices: true}); err != nil {
		return err
	}
	if err := suite.host.StartControllerManager(ctx, node.Controllers()...); err != nil {
		return err
	}
	if suite.node, err = node.Start(ctx, e, node.Options{Host: suite.host, Programs: programs}); err != nil {
		return err
	}
	if suite.admin, err = suite.host.AdminConfig(); err != nil {
		return err
	}
	if suite.kubeconfig, err = suite.host.Kubeconfig("admin", "system:masters"); err != nil {
		return err
	}
	suite.cluster = &scenario.Cluster{Env: e, Host: suite.host}
	suite.kubectl, err = suite.host.Kubectl()
	return err
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// chart is the folder of the chart.
func chart(t *testing.T) string {
	t.Helper()
	root, err := env.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "config", "chart", "annex")
}

// run runs a program as an administrator of the cluster and returns all that it
// printed; an exit code other than 0 is an error.
func run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	home := filepath.Dir(suite.kubeconfig)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + suite.kubeconfig}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return output.String(), err
}

// helm runs Helm in the namespace of the release.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	begin := time.Now()
	output, err := run(testContext(t), suite.helm, append(args, "--namespace="+namespace)...)
	t.Logf("helm %s: %v after %s\n%s", args[0], err, time.Since(begin).Round(100*time.Millisecond), output)
	return output, err
}

func mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	output, err := helm(t, args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// plugin runs kubectl-annex.
func plugin(t *testing.T, args ...string) string {
	t.Helper()
	output, err := run(testContext(t), suite.plugin, args...)
	if err != nil {
		t.Fatalf("kubectl annex %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// explainFailure prints what a failed test needs to be understood.
func explainFailure(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx := context.WithoutCancel(t.Context())
		for _, args := range [][]string{
			{"get", "all,secrets,configmaps,pvc,endpointslices", "-o", "wide"},
			{"get", "apiservices", "-o", "custom-columns=NAME:.metadata.name,SERVICE:.spec.service.name,CONDITION:.status.conditions[*].message"},
			{"describe", "pods"},
			{"get", "events"},
		} {
			result, err := suite.kubectl.Run(ctx, append(args, "--namespace="+namespace)...)
			if err == nil {
				fmt.Fprintf(t.Output(), "--- kubectl %s\n%s%s\n", strings.Join(args, " "), result.Stdout, result.Stderr)
			}
		}
		suite.node.PrintLogs(t.Output(), namespace, 60)
	})
}
