// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/base64"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestLifecycle installs, upgrades, rolls back and uninstalls the chart in a
// cluster without nodes: what Helm does to objects, not what pods do.
func TestLifecycle(t *testing.T) {
	const release = "lifecycle"
	k := world.kubectl
	mustHelm := func(args ...string) {
		t.Helper()
		stdout, stderr, err := helmAt(t, world.kubeconfig, append(args, "--namespace="+release)...)
		if err != nil || strings.Contains(stderr, "WARN") {
			t.Fatalf("helm %v: %v\n%s%s", args, err, stdout, stderr)
		}
	}
	logLevel := func() string {
		t.Helper()
		args := k.MustRun(t, "get", "deployment", "annex-apiserver", "--namespace="+release, "--output=jsonpath={.spec.template.spec.containers[0].args}")
		for _, level := range []string{"--v=0", "--v=3"} {
			if strings.Contains(args, `"`+level+`"`) {
				return level
			}
		}
		return args
	}
	authority, err := os.ReadFile(world.caFile)
	if err != nil {
		t.Fatal(err)
	}
	bundle := base64.StdEncoding.EncodeToString(authority)

	mustHelm("install", release, chart(t), "--create-namespace")
	// As annex-controller does it.
	k.MustRun(t, "patch", "apiservice", "v1alpha1.kubeannex.io", "--type=merge", "--field-manager=annex-controller",
		`--patch={"spec":{"caBundle":"`+bundle+`"}}`)
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"upgrade", release, chart(t), "--set=apiserver.logLevel=3"}, "--v=3"},
		{[]string{"upgrade", release, chart(t), "--set=apiserver.logLevel=3", "--set=certificates.mode=existing"}, "--v=3"},
		{[]string{"rollback", release, "1"}, "--v=0"},
	} {
		mustHelm(step.args...)
		if got := logLevel(); got != step.want {
			t.Errorf("after helm %v annex-apiserver has %s, want %s", step.args, got, step.want)
		}
		if got := k.MustRun(t, "get", "apiservice", "v1alpha1.kubeannex.io", "--output=jsonpath={.spec.caBundle}"); got != bundle {
			t.Errorf("helm %v has changed the caBundle to %q", step.args, got)
		}
	}

	// Names are fixed, so a second release would take over the objects of the first.
	_, stderr, err := helmAt(t, world.kubeconfig, "install", "second", chart(t), "--namespace=second", "--create-namespace")
	if err == nil || !strings.Contains(stderr, "invalid ownership metadata") {
		t.Errorf("a second release: %v %s", err, stderr)
	}

	mustHelm("uninstall", release, "--no-hooks")
	if left := leftovers(t, release); len(left) > 0 {
		t.Errorf("left after the uninstall: %v", left)
	}
}

// leftovers are objects of a release, of all kinds that can be listed.
func leftovers(t *testing.T, release string) []string {
	t.Helper()
	kinds := strings.Fields(world.kubectl.MustRun(t, "api-resources", "--verbs=list,delete", "--output=name"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool {
		return strings.HasPrefix(kind, "events") || strings.HasSuffix(kind, ".kubeannex.io")
	})
	return strings.Fields(world.kubectl.MustRun(t, "get", strings.Join(kinds, ","), "--all-namespaces", "--output=name",
		"--selector=app.kubernetes.io/name=annex,app.kubernetes.io/instance="+release))
}
