// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
)

func TestDiscoveryIsKeptForAMinute(t *testing.T) {
	cluster, clock := &fakeDiscovery{minor: "31"}, testclock.NewFakePassiveClock(time.Unix(0, 0))
	host := NewHost(cluster, clock)
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for _, step := range []struct {
		after     time.Duration
		wantAsked int
	}{{0, 1}, {59 * time.Second, 1}, {time.Second, 2}} {
		clock.SetTime(clock.Now().Add(step.after))
		if _, err := host.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := host.Resource(t.Context(), pods); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{step.wantAsked, step.wantAsked}, []int{cluster.asked, cluster.askedResources}); diff != "" {
			t.Errorf("asked for the version and for resources %v later (-want +got):\n%s", step.after, diff)
		}
	}
}

func TestDiscoveryAsksForWhatMayBeNew(t *testing.T) {
	cluster, clock := &fakeDiscovery{minor: "31"}, testclock.NewFakePassiveClock(time.Unix(0, 0))
	host := NewHost(cluster, clock).(*discoveredHost)
	for _, step := range []struct {
		group, version, resource string
		wantAsked                int
		wantKept                 int
		wantFound                bool
	}{
		{"", "v1", "pods", 1, 1, true},
		{"", "v1", "events", 1, 1, true},
		{"", "v1", "nothing", 2, 1, false},
		{"", "v1", "nothing", 3, 1, false},
		{"made.up", "v1", "things", 4, 1, false},
		{"argoproj.io", "v1alpha1", "workflows", 5, 2, true},
	} {
		_, err := host.Resource(t.Context(), schema.GroupVersionResource{Group: step.group, Version: step.version, Resource: step.resource})
		if found := err == nil; found != step.wantFound || !found && !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, want found %t", step.resource, err, step.wantFound)
		}
		if diff := cmp.Diff([]int{step.wantAsked, step.wantKept}, []int{cluster.askedResources, len(host.groupVersions)}); diff != "" {
			t.Errorf("asked and kept after %s (-want +got):\n%s", step.resource, diff)
		}
	}
	clock.SetTime(clock.Now().Add(discoveryAge))
	if _, err := host.Resource(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "pods"}); err != nil {
		t.Fatal(err)
	}
	if len(host.groupVersions) != 1 {
		t.Errorf("%d group versions are kept, want those alone that are not too old", len(host.groupVersions))
	}
}
