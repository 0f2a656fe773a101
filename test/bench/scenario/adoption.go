// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/adopt"
	"github.com/kubeannex/annex/pkg/cli/follow"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
	"github.com/kubeannex/annex/test/bench/report"
	"github.com/kubeannex/annex/test/env"
)

const (
	// SideAdopted is a host whose group was adopted and whose copies were purged.
	SideAdopted = "adopted"

	// adoptionTimeout bounds the adoption, and the purge.
	adoptionTimeout = 10 * time.Minute
	// adoptionShare is which part of the endpoints is adopted, and half of that in a smoke
	// run: with all of them the adoption and the purge, which deletes one object after
	// another, take too long.
	adoptionShare = 10
	// writesAround is how often the writer writes before and after the adoption.
	writesAround = 50
)

// adoption measures how a group moves from a host into annex, and what that frees
// on the host. The side host is a second cluster before the adoption, right after
// a restart of its kube-apiserver; the side adopted is the same cluster after the
// adoption and the purge of the host's copies. An adoption cannot be repeated, so
// there is one round. All through the adoption one client writes every few
// milliseconds without retries: the longest time without a successful write is
// what clients see of the fence. In the end, every object must be there with the
// UID and the spec that it had.
//
// The controller is told that requests at the host live three seconds instead of a
// minute. It waits that long, and some seconds more, between the adoption and the
// purge; no metric contains that wait.
type adoption struct {
	// share is which part of the endpoints is adopted.
	share int
	// objects is how many are adopted.
	objects int
	second  *cluster.Adoptable
	// before is what the host had.
	before   contents
	progress func(format string, args ...any)
}

var (
	_ Scenario    = &adoption{}
	_ Sided       = &adoption{}
	_ Independent = &adoption{}
	_ Titled      = &adoption{}
	_ Paced       = &adoption{}
)

func newAdoption(smoke bool) *adoption {
	s := &adoption{share: adoptionShare}
	if smoke {
		s.share *= 2
	}
	return s
}

// Name implements Scenario.
func (s *adoption) Name() string { return "adoption" }

// Title implements Titled.
func (s *adoption) Title() string {
	return fmt.Sprintf("Adoption of %d endpoints, measured once: the host before it, and after it and the purge", s.objects)
}

// Rounds implements Paced: a round would need a new cluster.
func (s *adoption) Rounds(int) (measured, warmup int) { return 1, 0 }

// Metrics implements Scenario.
func (s *adoption) Metrics() []Metric {
	// Metrics of both sides come first, so that the columns are in the order of the sides.
	return []Metric{
		{Name: "host.heap", Title: "kube-apiserver, live heap", Unit: report.Bytes, Better: Lower},
		{Name: "host.rss", Title: "kube-apiserver, RSS after a restart", Unit: report.Bytes, Better: Lower},
		{Name: "etcd.size", Title: "host's etcd, database", Unit: report.Bytes, Better: Lower},
		{Name: "etcd.rss", Title: "host's etcd, RSS", Unit: report.Bytes, Better: Lower},
		{Name: "host.lived", Title: "kube-apiserver, RSS without a restart since", Unit: report.Bytes, Better: Lower},
		{Name: "annex.heap", Title: "annex-apiserver, live heap", Unit: report.Bytes, Better: Lower},
		{Name: "annex.rss", Title: "annex-apiserver, RSS", Unit: report.Bytes, Better: Lower},
		{Name: "annex.size", Title: "annex's etcd, database", Unit: report.Bytes, Better: Lower},
		{Name: "copy.rate", Title: "copying", Unit: report.ObjectsPerSecond, Better: Higher},
		{Name: "total.time", Title: "whole adoption", Unit: report.Seconds, Better: Lower},
		{Name: "fence.time", Title: "fence, by annex", Unit: report.Seconds, Better: Lower},
		{Name: "gap.time", Title: "longest time without a write, by a client", Unit: report.Seconds, Better: Lower},
		{Name: "purge.time", Title: "purge", Unit: report.Seconds, Better: Lower},
		{Name: "purge.rate", Title: "purge, throughput", Unit: report.ObjectsPerSecond, Better: Higher},
	}
}

// Independent implements Independent.
func (s *adoption) Independent() {}

// Sides implements Sided.
func (s *adoption) Sides(*cluster.Cluster) []cluster.Side {
	return []cluster.Side{s.second.Side(cluster.SideHost), s.second.Side(SideAdopted)}
}

// Prepare implements Scenario. It starts the second cluster, without annex.
func (s *adoption) Prepare(ctx context.Context, c *cluster.Cluster) error {
	s.objects, s.progress = max(1, c.Sizes.Endpoints/s.share), c.Progress
	var err error
	s.second, err = c.StartAdoptable(ctx, s.objects)
	return err
}

// Round implements Scenario. The runner measures the sides in their order.
func (s *adoption) Round(ctx context.Context, _ *cluster.Cluster, side cluster.Side) (Sample, error) {
	sample := Sample{Metrics: map[string]float64{}}
	if side.Name == cluster.SideHost {
		return sample, s.measureBefore(ctx, side, sample)
	}
	if err := s.second.StartAnnex(ctx); err != nil {
		return Sample{}, err
	}
	if err := s.adopt(ctx, side, sample); err != nil {
		return Sample{}, fmt.Errorf("adopting: %w", err)
	}
	if err := s.purge(ctx, sample); err != nil {
		return Sample{}, fmt.Errorf("purging: %w", err)
	}
	return sample, s.measureAfter(ctx, side, sample)
}

func (s *adoption) measureBefore(ctx context.Context, side cluster.Side, sample Sample) error {
	var err error
	if sample.Metrics["host.heap"], sample.Metrics["host.rss"], err = s.measureKubeAPIServer(ctx); err != nil {
		return err
	}
	database, err := s.measureHostEtcd(ctx, sample)
	if err != nil {
		return err
	}
	if database.Endpoints != int64(s.objects) {
		return fmt.Errorf("the host's etcd has %d endpoints, wanted are %d", database.Endpoints, s.objects)
	}
	s.before, err = readContents(ctx, side, s.objects)
	return err
}

// measureServer measures the live heap and then the RSS of an API server.
func measureServer(ctx context.Context, process *env.Process, config *rest.Config) (heap, rss float64, err error) {
	found, err := measure.LiveHeap(ctx, config)
	if err != nil {
		return 0, 0, err
	}
	usage, err := measure.Processes(process.PID())
	return float64(found.Live), float64(usage.Resident), err
}

func (s *adoption) measureKubeAPIServer(ctx context.Context) (heap, rss float64, err error) {
	return measureServer(ctx, s.second.Host.APIServers[0].Process, s.second.HostConfig)
}

func (s *adoption) measureHostEtcd(ctx context.Context, sample Sample) (cluster.Database, error) {
	database, err := cluster.MeasureDatabase(ctx, s.second.Host.Etcd)
	if err != nil {
		return database, err
	}
	usage, err := measure.Processes(s.second.Host.Etcd.PID())
	sample.Metrics["etcd.size"], sample.Metrics["etcd.rss"] = float64(database.Bytes), float64(usage.Resident)
	return database, err
}

// adopt adopts the group under the eyes of a writer.
func (s *adoption) adopt(ctx context.Context, side cluster.Side, sample Sample) error {
	w, err := startWriter(ctx, side, s.second.Sizes)
	if err != nil {
		return err
	}
	defer w.stop()
	if err := w.await(ctx, writesAround); err != nil {
		return err
	}
	start := time.Now()
	if err := s.second.Adopt(ctx); err != nil {
		return err
	}
	phases := newTimeline()
	group, err := follow.Until(ctx, s.second.Groups, side.Group, adoptionTimeout, phases, adopt.Verdict)
	if err != nil {
		return err
	}
	total := time.Since(start)
	if err := w.await(ctx, writesAround); err != nil {
		return err
	}
	w.stop()
	if err := w.check(ctx); err != nil {
		return err
	}
	if group.Status.FenceDuration == nil {
		return errors.New("the status does not tell how long the fence held")
	}
	copying := phases.spent[v1alpha1.PhaseCopying]
	if copying <= 0 {
		return fmt.Errorf("no copying was seen: %s", phases)
	}
	s.progress("adopted %d objects in %.1f s: %s; %s", s.objects, total.Seconds(), phases, w)
	sample.Metrics["copy.rate"] = float64(s.objects) / copying.Seconds()
	sample.Metrics["total.time"] = total.Seconds()
	sample.Metrics["fence.time"] = group.Status.FenceDuration.Seconds()
	sample.Metrics["gap.time"] = w.gap.Seconds()
	return nil
}

// purge deletes the host's copies in the way of kubectl annex purge.
func (s *adoption) purge(ctx context.Context, sample Sample) error {
	if _, err := follow.Until(ctx, s.second.Groups, dataset.HostGroup, adoptionTimeout, newTimeline(), mayPurge); err != nil {
		return err
	}
	start := time.Now()
	patch := []byte(`{"spec":{"hostCopies":"` + string(v1alpha1.HostCopiesPurge) + `"}}`)
	groups := s.second.Groups.KubeannexV1alpha1().AnnexedGroups()
	if _, err := groups.Patch(ctx, dataset.HostGroup, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err := follow.Until(ctx, s.second.Groups, dataset.HostGroup, adoptionTimeout, newTimeline(), purged); err != nil {
		return err
	}
	took := time.Since(start)
	s.progress("purged in %.1f s", took.Seconds())
	sample.Metrics["purge.time"], sample.Metrics["purge.rate"] = took.Seconds(), float64(s.objects)/took.Seconds()
	return nil
}

// mayPurge ends the wait when annex has looked at the host's copies for the last time.
func mayPurge(group *v1alpha1.AnnexedGroup) (bool, error) {
	if group == nil {
		return false, errors.New("the AnnexedGroup is gone")
	}
	strays := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionStrayWrites)
	if strays == nil || strays.Reason == v1alpha1.ReasonWatching {
		return false, nil
	}
	if strays.Status != metav1.ConditionFalse {
		return false, errors.New(strays.Message)
	}
	return true, nil
}

// purged ends the wait when the copies are gone, or are refused to be deleted.
func purged(group *v1alpha1.AnnexedGroup) (bool, error) {
	if group == nil {
		return false, errors.New("the AnnexedGroup is gone")
	}
	condition := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionHostCopiesPurged)
	switch {
	case condition == nil || condition.Reason == v1alpha1.ReasonPurging || condition.ObservedGeneration < group.Generation:
		return false, nil
	case condition.Status == metav1.ConditionTrue:
		return true, nil
	}
	return false, errors.New(condition.Message)
}

func (s *adoption) measureAfter(ctx context.Context, side cluster.Side, sample Sample) error {
	var err error
	metrics := sample.Metrics
	if metrics["annex.heap"], metrics["annex.rss"], err = measureServer(ctx, s.second.Annex.Replicas[0].Process, s.second.AnnexConfig); err != nil {
		return err
	}
	annex, err := cluster.MeasureDatabase(ctx, s.second.Annex.Etcd)
	if err != nil {
		return err
	}
	metrics["annex.size"] = float64(annex.Bytes)
	host, err := s.measureHostEtcd(ctx, sample)
	if err != nil {
		return err
	}
	if annex.Endpoints != int64(s.objects) || host.Endpoints != 0 {
		return fmt.Errorf("annex's etcd has %d endpoints and the host's %d, wanted are %d and none", annex.Endpoints, host.Endpoints, s.objects)
	}
	if err := s.measureHost(ctx, sample); err != nil {
		return err
	}
	after, err := readContents(ctx, side, s.objects)
	if err != nil {
		return err
	}
	return s.before.compare(after)
}

// measureHost measures kube-apiserver as it is, and its RSS again after a restart:
// as long as it runs it keeps much of what it needed once.
func (s *adoption) measureHost(ctx context.Context, sample Sample) error {
	var err error
	// The heap is that of the server that has seen the adoption: it would show a leak.
	if sample.Metrics["host.heap"], sample.Metrics["host.lived"], err = s.measureKubeAPIServer(ctx); err != nil {
		return err
	}
	if err := s.second.RestartHost(ctx); err != nil {
		return err
	}
	_, sample.Metrics["host.rss"], err = s.measureKubeAPIServer(ctx)
	return err
}

// Close implements Scenario. It ends the second cluster.
func (s *adoption) Close(context.Context) error {
	if s.second == nil {
		return nil
	}
	return s.second.Close()
}
