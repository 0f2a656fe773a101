// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// gathered returns all series of a registry as "name{label=value,...} value"; of a histogram the count and the sum.
func gathered(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			value := fmt.Sprint(metric.GetGauge().GetValue() + metric.GetCounter().GetValue())
			if histogram := metric.GetHistogram(); histogram != nil {
				value = fmt.Sprintf("%d in %gs", histogram.GetSampleCount(), histogram.GetSampleSum())
			}
			name := strings.TrimPrefix(family.GetName(), "annex_annexedgroup_")
			lines = append(lines, name+"{"+strings.Join(labels, ",")+"} "+value)
		}
	}
	slices.Sort(lines)
	return lines
}

func TestMetricsOfAMove(t *testing.T) {
	born := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return born.Add(time.Duration(seconds) * time.Second) }
	group := func(phase kubeannexv1alpha1.AnnexedGroupPhase, change ...func(*kubeannexv1alpha1.AnnexedGroup)) *kubeannexv1alpha1.AnnexedGroup {
		g := &kubeannexv1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: "g.test", CreationTimestamp: metav1.NewTime(born)}}
		g.Status.Phase = phase
		for _, c := range change {
			c(g)
		}
		return g
	}
	fenced := func(d time.Duration) func(*kubeannexv1alpha1.AnnexedGroup) {
		return func(g *kubeannexv1alpha1.AnnexedGroup) { g.Status.FenceDuration = &metav1.Duration{Duration: d} }
	}
	held := func(reason string) func(*kubeannexv1alpha1.AnnexedGroup) {
		return func(g *kubeannexv1alpha1.AnnexedGroup) {
			setCondition(g, kubeannexv1alpha1.ConditionProgressing, metav1.ConditionFalse, reason, "")
		}
	}
	deleted := func(g *kubeannexv1alpha1.AnnexedGroup) {
		moment := metav1.NewTime(at(100))
		g.DeletionTimestamp = &moment
	}
	cases := map[string]struct {
		play func(m *Metrics)
		want []string
	}{
		"a copy, held up": {
			play: func(m *Metrics) {
				m.observe(group(kubeannexv1alpha1.PhaseMirroring), group(kubeannexv1alpha1.PhaseCopying), at(1))
				m.wrote("g.test", "gadgets", toAnnex, 1000)
				m.wrote("g.test", "gadgets", toAnnex, 5)
				m.observe(group(kubeannexv1alpha1.PhaseCopying), group(kubeannexv1alpha1.PhaseCopying, held("HeldUp")), at(2))
			},
			want: []string{
				"copied_objects_total{group=g.test,resource=gadgets,to=annex} 1005",
				"held_up{group=g.test,reason=HeldUp} 1",
				"phase{group=g.test,phase=Copying} 1",
			},
		},
		"a fence that was lifted, and one that led to the end": {
			play: func(m *Metrics) {
				m.observe(group(kubeannexv1alpha1.PhaseFencing), group(kubeannexv1alpha1.PhaseCatchingUp, fenced(8*time.Second)), at(10))
				m.observe(group(kubeannexv1alpha1.PhaseCatchingUp, fenced(8*time.Second)), group(kubeannexv1alpha1.PhaseFencing, fenced(8*time.Second)), at(20))
				m.observe(group(kubeannexv1alpha1.PhaseUnfencing, fenced(8*time.Second)), group(kubeannexv1alpha1.PhaseAnnexed, fenced(2*time.Second), held("Done")), at(30))
				m.observe(group(kubeannexv1alpha1.PhaseAnnexed, fenced(2*time.Second)), group(kubeannexv1alpha1.PhaseAnnexed, fenced(2*time.Second), held("Done")), at(60))
			},
			want: []string{
				"fence_duration_seconds{group=g.test} 2 in 10s",
				"move_duration_seconds{move=adoption} 1 in 30s",
				"phase{group=g.test,phase=Annexed} 1",
			},
		},
		"a release": {
			play: func(m *Metrics) {
				m.observe(group(kubeannexv1alpha1.PhaseReleaseCuttingOver, deleted), group(kubeannexv1alpha1.PhaseReleaseUnfencing, deleted), at(105))
				m.gone("g.test", at(110))
				m.gone("g.test", at(120))
			},
			want: []string{"move_duration_seconds{move=release} 1 in 10s"},
		},
		"an abort": {
			play: func(m *Metrics) {
				m.observe(group(kubeannexv1alpha1.PhaseCopying, deleted), group(kubeannexv1alpha1.PhaseAborting, deleted), at(101))
				m.gone("g.test", at(104))
			},
			want: []string{"move_duration_seconds{move=abort} 1 in 4s"},
		},
		"a finalizer removed by hand": {
			play: func(m *Metrics) {
				m.observe(group(kubeannexv1alpha1.PhaseAnnexed), group(kubeannexv1alpha1.PhaseAnnexed), at(101))
				m.gone("g.test", at(104))
				m.gone("other.test", at(104))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry, m := prometheus.NewRegistry(), NewMetrics()
			if err := m.Register(registry.Register); err != nil {
				t.Fatal(err)
			}
			tc.play(m)
			if diff := cmp.Diff(tc.want, gathered(t, registry)); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoMetricsAreNeeded(*testing.T) {
	var m *Metrics
	group := &kubeannexv1alpha1.AnnexedGroup{}
	m.observe(group, group, time.Now())
	m.gone("g.test", time.Now())
	m.wrote("g.test", "gadgets", toAnnex, 1)
}
