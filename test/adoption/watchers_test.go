// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeannex/annex/test/adoption/scenario"
)

// watchEnd is how long an old watch may stay open after a move. kube-apiserver
// tears the storage of a changed definition down within seconds.
const watchEnd = 20 * time.Second

// witnesses are clients of every resource at both kube-apiservers.
type witnesses struct {
	recorders []*scenario.Recorder
	raw       []*scenario.RawWatch
}

func watchEverywhere(t *testing.T, group *scenario.Group) witnesses {
	t.Helper()
	var w witnesses
	for server := range suite.cluster.Host.APIServers {
		config := suite.cluster.HostConfig(t, server)
		for _, gvr := range []schema.GroupVersionResource{group.Gadgets("v1"), group.Gadgets("v1beta1"), group.Planets()} {
			w.recorders = append(w.recorders, group.Record(t, config, gvr))
			w.raw = append(w.raw, group.RawWatch(t, config, gvr))
		}
	}
	return w
}

// mustHaveNoticed fails the test when a watch is silent: every one that was
// open must have ended, its revision must be refused with 410, and the informers see new writes.
func (w witnesses) mustHaveNoticed(t *testing.T) {
	t.Helper()
	for _, raw := range w.raw {
		if err := raw.MustEnd(t, watchEnd); err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("%s: the last event is %v, want none or 410", raw, err)
		}
		raw.MustBeExpired(t)
	}
	for _, recorder := range w.recorders {
		recorder.MustBeQuietAndAlive(t)
		t.Log(recorder.Summary())
	}
}

// TestWatchersOfAnAdoption looks at watches that were open before the flip, at
// their revisions after it, and at a list that was begun before it.
func TestWatchersOfAnAdoption(t *testing.T) {
	group := suite.cluster.NewGroup(t, "watchers.annex.test", nil)
	group.Seed(t, 100, 30)
	before := group.Snapshot(t, suite.cluster.HostConfig(t, 0))
	w := watchEverywhere(t, group)
	gadgets := group.HostClient(t, group.Gadgets("v1"))
	page, err := gadgets.List(t.Context(), metav1.ListOptions{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}

	adopt(t, group)
	w.mustHaveNoticed(t)
	group.MustBeAnnexed(t, before)
	_, err = gadgets.List(t.Context(), metav1.ListOptions{Limit: 10, Continue: page.GetContinue()})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("the second page of a list that was begun at the host: %v, want 410 Expired", err)
	}
	exact := metav1.ListOptions{ResourceVersion: page.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if _, err := gadgets.List(t.Context(), exact); !apierrors.IsResourceExpired(err) {
		t.Errorf("a list at a revision of the host: %v, want 410 Expired", err)
	}
	newer := metav1.ListOptions{ResourceVersion: page.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	list, err := gadgets.List(t.Context(), newer)
	if err != nil || !scenario.FromAnnex(list.GetResourceVersion()) {
		t.Errorf("a list not older than a revision of the host: %v, want one of annex", err)
	}
}

// TestWatchersOfARelease does the same on the way back: the revisions of annex
// are far above the host's, where a watch would be silent for ever.
func TestWatchersOfARelease(t *testing.T) {
	group := suite.cluster.NewGroup(t, "back.annex.test", nil)
	group.Seed(t, 100, 30)
	before := group.Snapshot(t, suite.cluster.HostConfig(t, 0))
	adopt(t, group)
	group.MustBeAnnexed(t, before)
	w := watchEverywhere(t, group)

	begin := time.Now()
	group.Delete(t)
	group.WaitGone(t)
	t.Logf("released after %s", time.Since(begin).Round(time.Millisecond))
	for _, raw := range w.raw {
		if err := raw.MustEnd(t, watchEnd); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("%s: the last event is %v, want 410", raw, err)
		}
	}
	for _, recorder := range w.recorders {
		recorder.MustBeQuietAndAlive(t)
		t.Log(recorder.Summary())
	}
	group.MustBeOnHost(t, before)
}
