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
	authority, err := os.ReadFile(world.host.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	bundle := base64.StdEncoding.EncodeToString(authority)

	mustHelm("install", release, chart(t), "--create-namespace")
	// As annex-controller does it.
	k.MustRun(t, "patch", "apiservice", "v1alpha1.kubeannex.io", "--type=merge", "--field-manager=annex-controller",
		`--patch={"spec":{"caBundle":"`+bundle+`"}}`)
	modes := func() string {
		t.Helper()
		return k.MustRun(t, "get", "configmap", "annex-modes", "--namespace="+release, "--ignore-not-found", "--output=jsonpath={.data.etcd} {.data.certificates}")
	}
	for _, step := range lifecycleSteps(release, chart(t)) {
		if step.forget {
			k.MustRun(t, "delete", "configmap", "annex-modes", "--namespace="+release)
		}
		if step.refused == "" {
			mustHelm(step.args...)
		} else if _, stderr, err := helmAt(t, world.kubeconfig, append(step.args, "--namespace="+release)...); err == nil || !strings.Contains(stderr, step.refused) {
			t.Errorf("helm %v: %v\n%s\nwithout %q", step.args, err, stderr, step.refused)
		}
		if got := logLevel(); got != step.want {
			t.Errorf("after helm %v annex-apiserver has %s, want %s", step.args, got, step.want)
		}
		if got := modes(); got != step.wantModes {
			t.Errorf("after helm %v the modes are %q, want %q", step.args, got, step.wantModes)
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

// lifecycleStep is what Helm is asked between the installation and the end, and
// what is there after it.
type lifecycleStep struct {
	args []string
	// refused is why Helm does nothing. Empty means that it does.
	refused string
	// forget has the administrator say before that he knows better.
	forget bool
	// want is the verbosity of annex-apiserver, wantModes what is noted of etcd and of certificates.
	want, wantModes string
}

func lifecycleSteps(release, chart string) []lifecycleStep {
	const (
		noted     = "statefulset annex"
		otherEtcd = "etcd.mode is statefulset in this release and cannot become embedded: objects do not move from one to the other: set it back, or release all groups, uninstall, and install again"
	)
	return []lifecycleStep{
		{args: []string{"upgrade", release, chart, "--set=apiserver.logLevel=3"}, want: "--v=3", wantModes: noted},
		{
			args:    []string{"upgrade", release, chart, "--set=etcd.mode=embedded"},
			refused: otherEtcd,
			want:    "--v=3", wantModes: noted,
		},
		{
			args:    []string{"upgrade", release, chart, "--set=certificates.mode=existing"},
			refused: `certificates.mode is annex in this release and cannot become existing: the Secrets of one are not those of the other: set it back, or see "Certificates" in docs/install.md`,
			want:    "--v=3", wantModes: noted,
		},
		// The members of etcd tell of themselves.
		{args: []string{"upgrade", release, chart, "--set=etcd.mode=embedded"}, forget: true, refused: otherEtcd, want: "--v=3"},
		{args: []string{"upgrade", release, chart, "--set=apiserver.logLevel=3", "--set=certificates.mode=existing"}, want: "--v=3", wantModes: "statefulset existing"},
		{args: []string{"rollback", release, "1"}, want: "--v=0", wantModes: noted},
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
