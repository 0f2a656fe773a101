// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/env"
)

// metricsPage is below the repository root.
const metricsPage = "docs/metrics.md"

// ghostGroup has no definitions, so its adoption waits.
const ghostGroup = "gho.annex.test"

// metricRow is a row of a table of the page.
var metricRow = regexp.MustCompile("(?m)^\\| `(annex_\\w+)` \\| ([a-z_, ]*) \\| (?:A (gauge|histogram)\\. )?")

// family is what there is to compare of a metric.
type family struct {
	Kind   string
	Labels []string
}

// impossible are the metrics of a program that this world cannot show, and why.
func impossible(program string) map[string]string {
	const files = "certificates are files here; TestMetrics of pkg/controller/certificates has them issued"
	return map[string]map[string]string{
		"annex-apiserver": {
			"annex_disabled_plugins": "the cluster serves every API that a plug-in lives on; test/admission/skew has one that does not",
		},
		"annex-controller": {
			"annex_controller_certificate_expiration_timestamp_seconds": files,
			"annex_controller_certificate_failures_total":               files,
			"annex_controller_certificates_issued_total":                files,
		},
	}[program]
}

// checkMetrics compares what both programs show with the page. It belongs behind an adoption, which
// makes most of it appear, and sees to the rest.
func checkMetrics(t *testing.T) {
	root, err := env.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, metricsPage))
	if err != nil {
		t.Fatal(err)
	}
	replica, err := replicaConfig(0)("admin")
	if err != nil {
		t.Fatal(err)
	}
	defer holdGroup(t)()
	s := newSession(t, &target{name: "annex", group: movedGroup, config: replicaConfig(0)}, "moved")
	s.must("list by an index", http.StatusOK, http.MethodGet, s.of("gadgets")+"?fieldSelector=spec.color%3Dred&resourceVersion=0", "")
	s.must("list from etcd", http.StatusOK, http.MethodGet, s.of("gadgets")+"?fieldSelector=metadata.name%3Dtwo&limit=1&resourceVersion=1", "")
	s.must("read what is not there", http.StatusNotFound, http.MethodGet, s.of("gadgets")+"/nobody", "")
	s.must("read what is not served", http.StatusServiceUnavailable, http.MethodGet, "/apis/"+ghostGroup+"/v1/ghosts", "")
	for program, server := range map[string]*rest.Config{
		"annex-apiserver":  replica,
		"annex-controller": {Host: "http://" + suite.metrics},
	} {
		t.Run(program, func(t *testing.T) {
			want := familiesOf(t, string(page), program)
			var problem string
			err := poll(t, func(ctx context.Context) (bool, error) {
				shown, err := shownFamilies(ctx, server)
				if ctx.Err() != nil {
					return false, nil
				}
				if err != nil {
					return false, err
				}
				problem = cmp.Diff(want, shown)
				return problem == "", nil
			})
			if err != nil {
				t.Errorf("%v: metrics (-%s +shown):\n%s", err, metricsPage, problem)
			}
		})
	}
}

// holdGroup begins an adoption that waits until release ends it.
func holdGroup(t *testing.T) (release func()) {
	t.Helper()
	ghost := suite.cluster.NamedGroup(ghostGroup)
	ghost.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	ghost.WaitCondition(t, kubeannexv1alpha1.ConditionPreflightPassed, metav1.ConditionFalse)
	return func() {
		ghost.Delete(t)
		ghost.WaitGone(t)
	}
}

// familiesOf are the metrics of a program by the page, without the impossible ones, which have to be on it too.
func familiesOf(t *testing.T, page, program string) map[string]family {
	t.Helper()
	_, section, _ := strings.Cut(page, "\n## "+program+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	families := map[string]family{}
	for _, row := range metricRow.FindAllStringSubmatch(section, -1) {
		f := family{Kind: row[3]}
		if f.Kind == "" {
			f.Kind = "counter"
		}
		if row[2] != "" {
			f.Labels = strings.Split(row[2], ", ")
			slices.Sort(f.Labels)
		}
		families[row[1]] = f
	}
	for name := range impossible(program) {
		if _, found := families[name]; !found {
			t.Errorf("%s does not have %s, which cannot be shown here", metricsPage, name)
		}
		delete(families, name)
	}
	return families
}

// shownFamilies are the metrics of annex's own that a server shows.
func shownFamilies(ctx context.Context, server *rest.Config) (map[string]family, error) {
	client, err := rest.HTTPClientFor(server)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.Host+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics answers %s", answer.Status)
	}
	all, err := testutil.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, err
	}
	families := map[string]family{}
	for name, shown := range all {
		if !strings.HasPrefix(name, "annex_") {
			continue
		}
		f := family{Kind: strings.ToLower(shown.GetType().String())}
		for _, label := range shown.GetMetric()[0].GetLabel() {
			f.Labels = append(f.Labels, label.GetName())
		}
		slices.Sort(f.Labels)
		families[name] = f
	}
	return families, nil
}
