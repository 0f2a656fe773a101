// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// The values of the label "move".
const (
	moveAdoption = "adoption"
	moveAbort    = "abort"
	moveRelease  = "release"
)

// The values of the label "to".
const (
	toAnnex   = "annex"
	toCluster = "cluster"
)

// Metrics tell how groups are on their way. Only the controller that leads reconciles, so only its
// numbers are filled. A nil Metrics counts nothing.
type Metrics struct {
	phase, heldUp *prometheus.GaugeVec
	move, fence   *prometheus.HistogramVec
	copied        *prometheus.CounterVec

	mu sync.Mutex
	// seen are the groups as they were last seen.
	seen map[string]seenGroup
}

// seenGroup is what the end of a group is told from, when it is gone.
type seenGroup struct {
	phase   kubeannexv1alpha1.AnnexedGroupPhase
	deleted *metav1.Time
}

// MetricDescription tells what one metric means, for the reference page.
type MetricDescription struct {
	// Name and Labels identify its series.
	Name   string
	Labels []string
	// Kind is gauge, histogram or counter.
	Kind string
	// Help is one sentence.
	Help string
}

func phaseDescription() MetricDescription {
	return MetricDescription{
		Name: "annex_annexedgroup_phase", Labels: []string{"group", "phase"}, Kind: "gauge",
		Help: "1 for the phase that an AnnexedGroup is in.",
	}
}

func heldUpDescription() MetricDescription {
	return MetricDescription{
		Name: "annex_annexedgroup_held_up", Labels: []string{"group", "reason"}, Kind: "gauge",
		Help: "1 for an AnnexedGroup that does not get on, by the reason of its condition Progressing, whose message says how to mend it.",
	}
}

func moveDescription() MetricDescription {
	return MetricDescription{
		Name: "annex_annexedgroup_move_duration_seconds", Labels: []string{"move"}, Kind: "histogram",
		Help: "How long moves took that have ended: an adoption from the creation of the AnnexedGroup, a release and an abort from its deletion. Time in which a user was waited for counts.",
	}
}

func fenceDescription() MetricDescription {
	return MetricDescription{
		Name: "annex_annexedgroup_fence_duration_seconds", Labels: []string{"group"}, Kind: "histogram",
		Help: "How long writes of a group waited in a move, also in one that was put off.",
	}
}

func copiedDescription() MetricDescription {
	return MetricDescription{
		Name: "annex_annexedgroup_copied_objects_total", Labels: []string{"group", "resource", "to"}, Kind: "counter",
		Help: "Objects that were written to the other side, to annex in an adoption and to the cluster in a release. Those that changed or were deleted meanwhile count once more.",
	}
}

// MetricDescriptions describes all metrics of the controller that are annex's own.
func MetricDescriptions() []MetricDescription {
	return []MetricDescription{phaseDescription(), heldUpDescription(), moveDescription(), fenceDescription(), copiedDescription()}
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	gauge := func(d MetricDescription) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.Labels)
	}
	histogram := func(d MetricDescription, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: buckets}, d.Labels)
	}
	copied := copiedDescription()
	return &Metrics{
		phase:  gauge(phaseDescription()),
		heldUp: gauge(heldUpDescription()),
		move:   histogram(moveDescription(), []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}),
		// client-go waits for ten seconds.
		fence:  histogram(fenceDescription(), []float64{.25, .5, 1, 1.5, 2, 3, 4, 6, 8, 10, 15, 30, 60}),
		copied: prometheus.NewCounterVec(prometheus.CounterOpts{Name: copied.Name, Help: copied.Help}, copied.Labels),
		seen:   map[string]seenGroup{},
	}
}

// Register publishes the metrics, once in a process: register is that of the registry behind /metrics.
func (m *Metrics) Register(register func(prometheus.Collector) error) error {
	for _, collector := range []prometheus.Collector{m.phase, m.heldUp, m.move, m.fence, m.copied} {
		if err := register(collector); err != nil {
			return fmt.Errorf("registering the controller's metrics: %w", err)
		}
	}
	return nil
}

// observe notes what a step has made of a group.
func (m *Metrics) observe(before, after *kubeannexv1alpha1.AnnexedGroup, now time.Time) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[after.Name] = seenGroup{phase: after.Status.Phase, deleted: after.DeletionTimestamp}
	m.forgetState(after.Name)
	m.phase.WithLabelValues(after.Name, string(after.Status.Phase)).Set(1)
	if reason, held := heldUp(after); held {
		m.heldUp.WithLabelValues(after.Name, reason).Set(1)
	}
	const annexed = kubeannexv1alpha1.PhaseAnnexed
	if before.Status.Phase != annexed && after.Status.Phase == annexed {
		m.move.WithLabelValues(moveAdoption).Observe(since(after.CreationTimestamp, now))
	}
	if waited := after.Status.FenceDuration; waited != nil && (before.Status.FenceDuration == nil || *before.Status.FenceDuration != *waited) {
		m.fence.WithLabelValues(after.Name).Observe(waited.Seconds())
	}
}

// gone notes the end of a group. It may be told of one more than once, and of one that it never saw.
func (m *Metrics) gone(name string, now time.Time) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last, seen := m.seen[name]
	if !seen {
		return
	}
	delete(m.seen, name)
	m.forgetState(name)
	if last.deleted == nil {
		return // its finalizer was removed by hand
	}
	move := moveRelease
	if turnsBack(last.phase) || last.phase == kubeannexv1alpha1.PhaseAborting {
		move = moveAbort
	}
	m.move.WithLabelValues(move).Observe(since(*last.deleted, now))
}

// wrote counts objects that have arrived on the other side.
func (m *Metrics) wrote(group, resource, to string, objects int) {
	if m != nil {
		m.copied.WithLabelValues(group, resource, to).Add(float64(objects))
	}
}

func (m *Metrics) forgetState(group string) {
	labels := prometheus.Labels{"group": group}
	m.phase.DeletePartialMatch(labels)
	m.heldUp.DeletePartialMatch(labels)
}

func heldUp(group *kubeannexv1alpha1.AnnexedGroup) (reason string, held bool) {
	condition := meta.FindStatusCondition(group.Status.Conditions, kubeannexv1alpha1.ConditionProgressing)
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason == reasonDone {
		return "", false
	}
	return condition.Reason, true
}

// since is not negative when two clocks differ.
func since(begin metav1.Time, now time.Time) float64 {
	return max(now.Sub(begin.Time).Seconds(), 0)
}
