// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestMembersOutliveUpgrades renders upgrades for a cluster that has the members of
// etcd: those of annex leave their pods as they are, and with them a quorum.
func TestMembersOutliveUpgrades(t *testing.T) {
	const (
		ready   = `{"status":{"replicas":3,"readyReplicas":1,"currentRevision":"a","updateRevision":"a"}}`
		nobody  = `{"status":{"replicas":3,"readyReplicas":0,"currentRevision":"a","updateRevision":"a"}}`
		halfway = `{"status":{"replicas":3,"readyReplicas":2,"currentRevision":"a","updateRevision":"b"}}`
		earlier = "ghcr.io/kubeannex/annex:8.8.8"
		later   = "ghcr.io/kubeannex/annex:9.9.9"
	)
	tests := map[string]struct {
		args   []string
		status string
		// wantSeed is the image of etcd-seed. With the earlier one the whole pod has to be as before.
		wantSeed string
	}{
		"another version":               {status: ready, wantSeed: earlier},
		"another tag":                   {args: []string{"--set=image.tag=9.9.10"}, status: ready, wantSeed: earlier},
		"labels of all objects":         {args: []string{`--set-json=commonLabels={"team":"b"}`}, status: ready, wantSeed: earlier},
		"values of the servers":         {args: []string{"--set=apiserver.logLevel=3", "--set=controller.replicas=1"}, status: ready, wantSeed: earlier},
		"another flag of etcd":          {args: []string{"--set=etcd.statefulset.extraArgs={--heartbeat-interval=200}"}, status: ready, wantSeed: later},
		"another etcd":                  {args: []string{"--set=etcd.statefulset.image.tag=v3.7.4"}, status: ready, wantSeed: later},
		"another quota":                 {args: []string{"--set=etcd.quotaBytes=4294967296"}, status: ready, wantSeed: later},
		"another revision":              {args: []string{"--set-string=etcd.revisionFloor=2251799813685248"}, status: ready, wantSeed: later},
		"another registry":              {args: []string{"--set=image.repository=registry.example.com/annex"}, status: ready, wantSeed: "registry.example.com/annex:9.9.9"},
		"a named image":                 {args: []string{"--set=etcd.statefulset.seedImage=" + later}, status: ready, wantSeed: later},
		"members that have never begun": {status: nobody, wantSeed: later},
		"a change that is not at all":   {status: halfway, wantSeed: later},
	}
	const release = "members"
	before := version(t, "8.8.8")
	installed := renderedEtcd(t, before, release)
	world.kubectl.MustRun(t, "create", "namespace", release)
	world.kubectl.MustRunInput(t, installed.text, "apply", "--filename=-", "--namespace="+release)
	after := version(t, "9.9.9")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			world.kubectl.MustRun(t, "patch", "statefulset", "annex-etcd", "--namespace="+release, "--subresource=status", "--type=merge", "--patch="+test.status)
			upgraded := renderedEtcd(t, after, release, slices.Concat([]string{"--is-upgrade"}, test.args)...)
			if got := podOf(t, upgraded).InitContainers[0].Image; got != test.wantSeed {
				t.Errorf("etcd-seed is of %s, want %s", got, test.wantSeed)
			}
			if test.wantSeed != earlier {
				return
			}
			if diff := cmp.Diff(template(t, installed), template(t, upgraded)); diff != "" {
				t.Errorf("the upgrade restarts the members (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("an installation", func(t *testing.T) {
		if got := podOf(t, renderedEtcd(t, after, "newcomer")).InitContainers[0].Image; got != later {
			t.Errorf("etcd-seed is of %s, want %s", got, later)
		}
	})
}

// version returns a copy of the chart that is of another version.
func version(t *testing.T, number string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "annex")
	if err := os.CopyFS(dir, os.DirFS(chart(t))); err != nil {
		t.Fatal(err)
	}
	about := filepath.Join(dir, "Chart.yaml")
	content, err := os.ReadFile(about)
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^version: .*$`).ReplaceAllString(string(content), "version: "+number)
	text = regexp.MustCompile(`(?m)^appVersion: .*$`).ReplaceAllString(text, "appVersion: "+number)
	if strings.Count(text, number) != 2 {
		t.Fatalf("Chart.yaml has other lines than version and appVersion:\n%s", text)
	}
	if err := os.WriteFile(about, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// renderedEtcd renders the StatefulSet of etcd with a look at the cluster.
func renderedEtcd(t *testing.T, chart, release string, args ...string) document {
	t.Helper()
	args = slices.Concat([]string{"template", release, chart, "--namespace=" + release, "--dry-run=server", "--show-only=templates/etcd/statefulset.yaml"}, args)
	stdout, stderr, err := helmAt(t, world.kubeconfig, args...)
	if err != nil {
		t.Fatalf("helm %v: %v\n%s", args, err, stderr)
	}
	return find(t, documents(t, stdout), "StatefulSet", "annex-etcd")
}

// template is what pods of a workload are made of.
func template(t *testing.T, d document) map[string]any {
	t.Helper()
	found, _, err := unstructured.NestedMap(d.Object, "spec", "template")
	if err != nil || len(found) == 0 {
		t.Fatalf("%s has no template of pods: %v", d.GetName(), err)
	}
	return found
}
