// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
	"github.com/kubeannex/annex/test/bench/report"
)

const (
	// isolationName names what the scenario makes in the cluster.
	isolationName = "annex-bench-isolation"
	// isolationQuiet and isolationFlood are how long core writes are measured
	// without and with a flood. In a smoke run it is a third of that.
	isolationQuiet = 500 * time.Millisecond
	isolationFlood = 1500 * time.Millisecond
	smokeWindow    = 3
)

// isolation measures how long core writes and lease renewals take at
// kube-apiserver while a group of custom resources is flooded. On the side host
// it is a group of kube-apiserver itself: the time before an adoption. On the side
// aggregated it is annex's group, as clients reach it after an adoption, on the
// side annex the same without the detour. In every round the same is measured
// without a flood first.
//
// The cluster holds both groups all the time, so "after" is the state before a
// purge: kube-apiserver still has its own copies in memory. Annex runs on the
// same cores as kube-apiserver and the load generator, which a cluster would not
// do to itself: a flood of annex takes CPU time from the host here, and nothing else.
//
// The flood comes from a service account of a user's namespace, and core writes
// from one of kube-system, so the host's API Priority and Fairness with its default
// configuration treats them as it would in a cluster: core writes are in a level of
// their own, with high priority, and lease renewals in another one.
type isolation struct {
	quiet, flooded time.Duration
	cluster        *cluster.Cluster
	core           *coreLoad
	floods         map[string]*flood
}

var (
	_ Scenario = &isolation{}
	_ Titled   = &isolation{}
)

func newIsolation(smoke bool) *isolation {
	s := &isolation{quiet: isolationQuiet, flooded: isolationFlood}
	if smoke {
		s.quiet, s.flooded = s.quiet/smokeWindow, s.flooded/smokeWindow
	}
	return s
}

// Name implements Scenario.
func (s *isolation) Name() string { return "isolation" }

// Title implements Titled.
func (s *isolation) Title() string {
	return fmt.Sprintf("The host's own writes while %d clients flood the endpoints", floodListers+floodWholes+floodWriters)
}

// Metrics implements Scenario.
func (s *isolation) Metrics() []Metric {
	var metrics []Metric
	for _, when := range []struct{ name, title string }{{"flood", "in a flood"}, {"quiet", "without one"}} {
		for _, what := range []struct{ name, title string }{{"writes", "core writes"}, {"leases", "lease renewals"}} {
			name, title := when.name+"."+what.name, what.title+" "+when.title
			metrics = append(metrics,
				Metric{Name: name + ".p50", Title: title + ", p50", Unit: report.Seconds, Better: Lower},
				Metric{Name: name + ".p99", Title: title + ", p99", Unit: report.Seconds, Better: Lower},
			)
		}
	}
	return append(metrics,
		Metric{Name: "answered.lists", Title: "flood, LISTs by field answered", Unit: report.RequestsPerSecond, Better: Higher},
		Metric{Name: "answered.wholes", Title: "flood, full LISTs answered", Unit: report.RequestsPerSecond, Better: Higher},
		Metric{Name: "answered.writes", Title: "flood, writes answered", Unit: report.RequestsPerSecond, Better: Higher},
		Metric{Name: "throttled", Title: "flood, answered with 429", Unit: report.RequestsPerSecond, Better: Lower},
	)
}

// Prepare implements Scenario.
func (s *isolation) Prepare(ctx context.Context, c *cluster.Cluster) error {
	s.cluster = c
	if err := s.grantRights(ctx); err != nil {
		return err
	}
	config, err := c.Host.ConfigFor(0, coreUser(), serviceAccountGroups(metav1.NamespaceSystem)...)
	if err != nil {
		return err
	}
	if s.core, err = newCoreLoad(config); err != nil {
		return err
	}
	s.floods = map[string]*flood{}
	for _, side := range c.Sides() {
		if side.Config, err = c.Host.ConfigFor(0, floodUser(), serviceAccountGroups(floodNamespace())...); err != nil {
			return err
		}
		if side.Name == cluster.SideAnnex {
			side.Config, err = c.Annex.BalancedConfig(floodUser(), serviceAccountGroups(floodNamespace())...)
		}
		if err != nil {
			return err
		}
		if s.floods[side.Name], err = newFlood(side, c.Sizes); err != nil {
			return err
		}
	}
	// In the order of the sides: annex remembers for some seconds that somebody has no rights.
	for _, side := range c.Sides() {
		if err := s.floods[side.Name].awaitRights(ctx); err != nil {
			return err
		}
	}
	return s.core.createLeases(ctx)
}

// grantRights lets both users do everything with what they write.
func (s *isolation) grantRights(ctx context.Context) error {
	all := []string{rbacv1.VerbAll}
	return s.cluster.Grant(ctx, cluster.Rights{
		Name: isolationName, Users: []string{coreUser(), floodUser()},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{dataset.HostGroup, dataset.AnnexedGroup}, Resources: []string{dataset.Endpoints.Resource()}, Verbs: all},
			{APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases"}, Verbs: all},
		},
	})
}

// serviceAccountGroups are the groups of all service accounts of a namespace.
func serviceAccountGroups(namespace string) []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}

func coreUser() string {
	return "system:serviceaccount:" + metav1.NamespaceSystem + ":" + isolationName
}

func floodUser() string { return "system:serviceaccount:" + floodNamespace() + ":" + isolationName }

func floodNamespace() string { return dataset.NamespaceName(0) }

// Round implements Scenario.
func (s *isolation) Round(ctx context.Context, _ *cluster.Cluster, side cluster.Side) (Sample, error) {
	sample := Sample{Metrics: map[string]float64{}}
	quiet, err := s.core.measure(ctx, s.quiet)
	if err != nil {
		return Sample{}, fmt.Errorf("without a flood: %w", err)
	}
	quiet.record(sample, "quiet")
	running := s.floods[side.Name].start(ctx)
	measured, err := s.core.measure(ctx, s.flooded)
	answered, floodErr := running.stop(ctx)
	if err := errors.Join(err, floodErr); err != nil {
		return Sample{}, fmt.Errorf("in a flood: %w", err)
	}
	measured.record(sample, "flood")
	answered.record(sample)
	return sample, settle(ctx, side)
}

// record adds percentiles to a sample.
func (r coreResult) record(sample Sample, when string) {
	for name, summary := range map[string]measure.Summary{"writes": r.writes, "leases": r.leases} {
		sample.Metrics[when+"."+name+".p50"], sample.Metrics[when+"."+name+".p99"] = summary.Median, summary.P99
	}
}

// Close implements Scenario.
func (s *isolation) Close(ctx context.Context) error {
	var errs []error
	for _, one := range s.floods {
		errs = append(errs, one.close(ctx))
	}
	if s.core != nil {
		errs = append(errs, s.core.close(ctx))
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Revoke(ctx, isolationName))
	}
	return errors.Join(errs...)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// awaitRights waits until the flood may read.
func (f *flood) awaitRights(ctx context.Context) error {
	return cluster.AwaitRights(ctx, f.side, func(ctx context.Context) error { return f.list(ctx, f.listers[0], 0, 0) })
}
