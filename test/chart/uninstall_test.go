// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os/exec"
	"strings"
	"testing"
)

// TestUninstallCheck runs what the hook runs, with its rights, at a kube-apiserver
// that does not have the API of annex: routes alone tell that annex has groups.
func TestUninstallCheck(t *testing.T) {
	k := world.kubectl
	var rights []string
	for _, d := range world.sets["statefulset"] {
		if d.GetName() == "annex-uninstall" && (d.GetKind() == "ClusterRole" || d.GetKind() == "ClusterRoleBinding") {
			rights = append(rights, d.text)
		}
	}
	manifests := strings.Join(rights, "\n---\n")
	k.MustRunInput(t, manifests, "apply", "--filename=-")
	defer k.MustRunInput(t, manifests, "delete", "--filename=-")
	kubeconfig, err := world.host.Kubeconfig("system:serviceaccount:"+namespace+":annex-uninstall", "system:serviceaccounts")
	if err != nil {
		t.Fatal(err)
	}
	job := podOf(t, find(t, world.sets["statefulset"], "Job", "annex-uninstall")).Containers[0]
	check := func() (string, error) {
		output, err := exec.CommandContext(t.Context(), world.controller, append(job.Args, "--kubeconfig="+kubeconfig)...).CombinedOutput()
		return string(output), err
	}
	route := func(group, service string) {
		t.Helper()
		k.MustRunInput(t, `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.`+group+`"},"spec":{"group":"`+group+`",
			"version":"v1","groupPriorityMinimum":1000,"versionPriority":15,"service":{"namespace":"`+namespace+`","name":"`+service+`"}}}`, "create", "--filename=-")
	}

	route("theirs.annex.test", "metrics")
	defer k.MustRun(t, "delete", "apiservice", "v1.theirs.annex.test", "--ignore-not-found")
	if output, err := check(); err != nil || output != "" {
		t.Errorf("without a group the hook fails: %v\n%s", err, output)
	}
	route("house.annex.test", "annex")
	defer k.MustRun(t, "delete", "apiservice", "v1.house.annex.test", "--ignore-not-found")
	output, err := check()
	if want := `annex has house.annex.test, which nobody could read without it: run "kubectl annex release GROUP --wait"`; err == nil || !strings.Contains(output, want) {
		t.Errorf("with a group the hook says: %v\n%s\nwithout %q", err, output, want)
	}
	k.MustRun(t, "delete", "apiservice", "v1.house.annex.test")
	if output, err := check(); err != nil {
		t.Errorf("after the group was given back the hook fails: %v\n%s", err, output)
	}
}
