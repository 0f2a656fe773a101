// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestRightsAreThoseOfTheTests compares what the chart grants with config/rbac, which
// all tests behind a real kube-apiserver run with.
func TestRightsAreThoseOfTheTests(t *testing.T) {
	rendered := documents(t, render(t))
	for _, name := range []string{"annex-apiserver", "annex-controller"} {
		content, err := os.ReadFile(path(t, "config/rbac/"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		granted := documents(t, string(content))
		want := map[string]any{}
		for _, d := range rendered {
			if strings.HasPrefix(d.GetKind(), "Role") || strings.HasPrefix(d.GetKind(), "ClusterRole") {
				if d.GetName() == name || strings.HasPrefix(d.GetName(), name+":") {
					want[d.GetKind()+" "+d.GetNamespace()+"/"+d.GetName()] = withoutLabels(d)
				}
			}
		}
		got := map[string]any{}
		for _, d := range granted {
			got[d.GetKind()+" "+d.GetNamespace()+"/"+d.GetName()] = withoutLabels(d)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("config/rbac/%s.yaml is not what the chart grants, run hack/update-chart.sh (-chart +file):\n%s", name, diff)
		}
	}
}

func withoutLabels(d document) map[string]any {
	object := d.DeepCopy()
	unstructured.RemoveNestedField(object.Object, "metadata", "labels")
	return object.Object
}

// TestDashboardShowsMetricsOfAnnex finds metrics of annex in the dashboard that annex does not have.
func TestDashboardShowsMetricsOfAnnex(t *testing.T) {
	metrics, err := os.ReadFile(path(t, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	dashboard := find(t, documents(t, render(t, "--set=monitoring.dashboard.enabled=true")), "ConfigMap", "annex-dashboard")
	text, _, err := unstructured.NestedString(dashboard.Object, "data", "annex.json")
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid([]byte(text)) {
		t.Error("the dashboard is not valid JSON")
	}
	used := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bannex_[a-z_]+`).FindAllString(text, -1) {
		name = strings.TrimSuffix(name, "_bucket")
		used[name] = true
	}
	if len(used) == 0 {
		t.Error("the dashboard shows no metric of annex")
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !strings.Contains(string(metrics), "`"+name+"`") {
			t.Errorf("the dashboard shows %s, which docs/metrics.md does not know", name)
		}
	}
}
