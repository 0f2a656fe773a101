// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubeannex/annex/test/env/ports"
)

// controllerManagerUser is bound by the bootstrap roles of kube-apiserver.
const controllerManagerUser = "system:kube-controller-manager"

// DefaultControllers are the controllers that act on custom resources and the
// ones they need; everything about nodes and volumes is left out.
func DefaultControllers() []string {
	return []string{
		"namespace-controller",
		"garbage-collector-controller",
		"resourcequota-controller",
		"serviceaccount-controller",
		"serviceaccount-token-controller",
		"root-ca-certificate-publisher-controller",
		"clusterrole-aggregation-controller",
		"deployment-controller",
		"replicaset-controller",
		"validatingadmissionpolicy-status-controller",
	}
}

// StartControllerManager starts kube-controller-manager at the first
// kube-apiserver, with the controllers named or else with those that act on
// custom resources. It learns of new API groups only every 30 seconds, so start
// it when the groups that matter are served.
func (h *Host) StartControllerManager(ctx context.Context, controllers ...string) error {
	program, err := h.env.Program(programControllerManager)
	if err != nil {
		return err
	}
	if len(controllers) == 0 {
		controllers = DefaultControllers()
	}
	port, err := h.env.ports.Take()
	if err != nil {
		return err
	}
	kubeconfig, err := h.Kubeconfig(controllerManagerUser)
	if err != nil {
		return err
	}
	admin, err := h.configAt("https://"+ports.Address(port), "admin", "system:masters")
	if err != nil {
		return err
	}
	probe, err := ready(admin, "/healthz")
	if err != nil {
		return err
	}
	h.ControllerManager, err = h.env.StartProcess(Command{
		Name: h.name + "-controller-manager",
		Path: program,
		Args: []string{
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + h.pki.servingCert,
			"--tls-private-key-file=" + h.pki.servingKey,
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--root-ca-file=" + h.pki.caFile,
			"--service-account-private-key-file=" + h.pki.serviceAccountKey,
			"--use-service-account-credentials=true",
			"--leader-elect=false",
			"--controllers=" + strings.Join(controllers, ","),
		},
		Ready: probe,
	})
	if err != nil {
		return err
	}
	return h.ControllerManager.WaitReady(ctx)
}
