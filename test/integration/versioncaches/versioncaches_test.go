// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package versioncaches shows on a running server that a version of a custom resource has
// a watch cache only once somebody reads it.
package versioncaches

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/component-base/metrics"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/test/env"
)

const (
	gadgets   = 300
	namespace = "t"
)

type world struct {
	dynamic dynamic.Interface
	metrics metrics.KubeRegistry
}

func startWorld(t *testing.T) world {
	t.Helper()
	server := testserver.StartStandalone(t)
	if err := env.InstallGadgets(t.Context(), server.ClientConfig); err != nil {
		t.Fatal(err)
	}
	var w world
	var err error
	if w.dynamic, err = dynamic.NewForConfig(server.ClientConfig); err != nil {
		t.Fatal(err)
	}
	w.metrics = metrics.NewKubeRegistry()
	if err := server.Config.ExtraConfig.StorageMetrics.Register(w.metrics.CustomRegister); err != nil {
		t.Fatal(err)
	}
	if err := env.SeedGadgets(t.Context(), server.ClientConfig, namespace, gadgets); err != nil {
		t.Fatal(err)
	}
	return w
}

// series reads the gadgets' series of a metric, by version.
func (w world) series(t *testing.T, metric string) map[string]float64 {
	t.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byVersion := map[string]float64{}
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, series := range family.GetMetric() {
			set := labels.Set{}
			for _, label := range series.GetLabel() {
				set[label.GetName()] = label.GetValue()
			}
			if set["group"] == env.FixtureGroup && set["resource"] == "gadgets" {
				byVersion[set["version"]] = series.GetGauge().GetValue()
			}
		}
	}
	return byVersion
}

func (w world) expectCaches(t *testing.T, when string, want map[string]float64) {
	t.Helper()
	if diff := cmp.Diff(want, w.series(t, "annex_watch_caches")); diff != "" {
		t.Errorf("caches %s (-want +got):\n%s", when, diff)
	}
}

// TestVersionThatNobodyReadsHasNoCache goes from no reader to readers of both versions.
func TestVersionThatNobodyReadsHasNoCache(t *testing.T) {
	w := startWorld(t)
	v1, v1beta1 := w.dynamic.Resource(env.GadgetResource("v1")).Namespace(namespace), w.dynamic.Resource(env.GadgetResource("v1beta1")).Namespace(namespace)
	first := env.SeedGadget(namespace, 0).GetName()
	stored, err := v1.Get(t.Context(), first, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v1beta1.Patch(t.Context(), first, types.MergePatchType, []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expectCaches(t, "after writes and reads of single objects", map[string]float64{"v1": 0, "v1beta1": 0})

	// A client that follows what it has read before there was a cache.
	watched, err := v1.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + first, ResourceVersion: stored.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	if event := <-watched.ResultChan(); event.Type != watch.Modified {
		t.Errorf("watch from before the cache began with %v, want the modification", event)
	}
	w.expectCaches(t, "with a watch of v1", map[string]float64{"v1": 1, "v1beta1": 0})
	if fill := w.series(t, "annex_watch_cache_fill_duration_seconds"); fill["v1"] <= 0 || len(fill) != 1 {
		t.Errorf("fill durations are %v, want one of v1", fill)
	}

	var lists sync.WaitGroup
	for range 10 {
		lists.Go(func() {
			list, err := v1beta1.List(t.Context(), metav1.ListOptions{LabelSelector: "team=a", ResourceVersion: "0"})
			if err != nil {
				t.Errorf("first list of v1beta1: %v", err)
			} else if len(list.Items) != gadgets/2 {
				t.Errorf("first list of v1beta1 has %d gadgets, want %d", len(list.Items), gadgets/2)
			}
		})
	}
	lists.Wait()
	w.expectCaches(t, "with readers of both", map[string]float64{"v1": 1, "v1beta1": 1})
}
