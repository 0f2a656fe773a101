// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubeannex/annex/test/env"
)

// world is what the tests of this package share. It is written by TestMain only.
var world struct {
	// helm is the program.
	helm string
	// kubectl is an administrator's, at a real kube-apiserver, and kubeconfig the file that it has.
	kubectl    *env.Kubectl
	kubeconfig string
	// host is that kube-apiserver.
	host *env.Host
	// controller is the program annex-controller.
	controller string
	// sets are the objects that the chart renders with each file of config/chart/annex/ci, by its name.
	sets map[string][]document
}

func TestMain(m *testing.M) { os.Exit(env.Main(m, setup)) }

func setup(ctx context.Context, e *env.Env) error {
	var err error
	if world.helm, err = e.Program("helm"); err != nil {
		return err
	}
	if world.controller, err = e.Program("annex-controller"); err != nil {
		return err
	}
	if world.host, err = e.StartHost(ctx, env.HostOptions{}); err != nil {
		return err
	}
	if world.kubeconfig, err = world.host.Kubeconfig("admin", "system:masters"); err != nil {
		return err
	}
	if world.kubectl, err = e.Kubectl(world.kubeconfig); err != nil {
		return err
	}
	if world.sets, err = renderSets(ctx, filepath.Dir(world.kubeconfig)); err != nil {
		return err
	}
	definitions, err := filepath.Abs("testdata/crds")
	if err != nil {
		return fmt.Errorf("finding the definitions: %w", err)
	}
	for _, args := range [][]string{
		{"create", "namespace", namespace},
		// What is not restricted is warned of, which the tests take as a failure.
		{"label", "namespace", namespace, "pod-security.kubernetes.io/warn=restricted", "pod-security.kubernetes.io/enforce=restricted"},
		{"apply", "--filename=" + definitions},
		{"wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinitions", "--all"},
	} {
		result, err := world.kubectl.Run(ctx, args...)
		if err != nil {
			return err
		}
		if result.ExitCode != 0 {
			return fmt.Errorf("kubectl %v: %s", args, result.Stderr)
		}
	}
	return nil
}
