// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
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

const (
	// returnPause is between two watches of a returning client, which one of client-go would make longer.
	returnPause = 20 * time.Millisecond
	// silence is how long an accepted watch may show nothing although there is something to show.
	silence = 2 * time.Second
)

// returning is a client that comes back all the time with the revision that it
// has once seen, after which there was a write: a watch that it gets must show it.
type returning struct {
	name     string
	client   dynamic.NamespaceableResourceInterface
	revision string

	// live and expired count the watches that showed the write and the answers 410.
	live, expired int
	// first and last are when the first and the last 410 came.
	first, last time.Time
	problems    []string
}

func (r *returning) problemf(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// run comes back until a watch is silent because the cluster answers it, which
// it must not do before annex has said 410.
func (r *returning) run(ctx context.Context) {
	for len(r.problems) == 0 && r.again(ctx) {
		select {
		case <-ctx.Done():
			r.problemf("the test was over")
		case <-time.After(returnPause):
		}
	}
}

// again asks for one watch. It returns false when the cluster answers.
func (r *returning) again(ctx context.Context) bool {
	event, err := r.ask(ctx)
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		if r.expired++; r.expired == 1 {
			r.first = time.Now()
		}
		r.last = time.Now()
	case err != nil:
		r.problemf("the answer is %v after %d times 410", err, r.expired)
	case event == ended && r.expired == 0:
		// A server may end a watch at any time.
	case event == "" || event == ended:
		return r.isSilent(ctx)
	case r.expired > 0:
		r.problemf("a watch was accepted and showed %s after %d times 410", event, r.expired)
	default:
		r.live++
	}
	return true
}

// ended stands for the end of a watch that has shown nothing.
const ended watch.EventType = "END"

// ask opens a watch and returns its first event: "" when it shows none in time.
func (r *returning) ask(ctx context.Context) (watch.EventType, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.client.Watch(ctx, metav1.ListOptions{ResourceVersion: r.revision})
	if err != nil {
		return "", err
	}
	defer stream.Stop()
	select {
	case event, ok := <-stream.ResultChan():
		switch {
		case !ok:
			return ended, nil
		case event.Type == watch.Error:
			return "", apierrors.FromObject(event.Object)
		}
		return event.Type, nil
	case <-time.After(silence):
		return "", nil
	}
}

// isSilent judges a watch that shows nothing: it returns false when the cluster answers.
func (r *returning) isSilent(ctx context.Context) bool {
	list, err := r.client.List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case err != nil:
		r.problemf("listing after a silent watch: %v", err)
	case r.expired == 0:
		r.problemf("a watch from revision %s was accepted and is silent, a list has revision %s, and nobody said 410 before", r.revision, list.GetResourceVersion())
	case scenario.FromAnnex(list.GetResourceVersion()):
		r.problemf("annex accepted a watch after %d times 410 and is silent", r.expired)
	}
	return false
}

// TestReturningWatchersOfARelease has clients that are between two watches at
// any moment. Each must be told at least once to list again before the cluster
// answers, whose silence would last for ever.
func TestReturningWatchersOfARelease(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "returning.annex.test", nil)
	group.Seed(t, 20, 5)
	adopt(t, group)
	// Until the last look at the copies definitions may change, and caches with them.
	group.WaitFor(t, "the end of the adoption", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		condition := meta.FindStatusCondition(g.Status.Conditions, kubeannexv1alpha1.ConditionStrayWrites)
		return condition != nil && condition.Reason != kubeannexv1alpha1.ReasonWatching
	})
	var clients []*returning
	for server := range cluster.Host.APIServers {
		for _, gvr := range []schema.GroupVersionResource{group.Gadgets("v1"), group.Planets()} {
			client := group.Client(t, cluster.HostConfig(t, server), gvr)
			list, err := client.List(scenario.Context(t), metav1.ListOptions{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			scenario.Mark(t, client, gvr)
			clients = append(clients, &returning{
				name: fmt.Sprintf("%s at kube-apiserver %d", gvr.Resource, server), client: client, revision: list.GetResourceVersion(),
			})
		}
	}
	ctx := scenario.Context(t)
	var wait sync.WaitGroup
	for _, client := range clients {
		wait.Go(func() { client.run(ctx) })
	}
	group.Delete(t)
	// What the markers are born as in the cluster does not matter here.
	allowNewUIDs(t, group)
	group.WaitGone(t)
	wait.Wait()
	for _, client := range clients {
		t.Logf("%s: %d live watches, then %d times 410 for %s", client.name, client.live, client.expired, client.last.Sub(client.first).Round(time.Millisecond))
		for _, problem := range client.problems {
			t.Errorf("%s: %s", client.name, problem)
		}
		if client.live == 0 {
			t.Errorf("%s has not come back before the release", client.name)
		}
	}
}
