// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
	"github.com/kubeannex/annex/pkg/controller/cluster"
)

// TestReleaseTurnsBackAsAWhole fails or finds nothing remembered behind the
// comparison. Once writes pass again the comparison must not count any more,
// whatever the next step finds.
func TestReleaseTurnsBackAsAWhole(t *testing.T) {
	const verifying, cuttingOver = kubeannexv1alpha1.PhaseReleaseVerifying, kubeannexv1alpha1.PhaseReleaseCuttingOver
	// Everything is compared after these.
	beginnings := []kubeannexv1alpha1.AnnexedGroupPhase{kubeannexv1alpha1.PhaseReleasing, kubeannexv1alpha1.PhaseReleaseFencing}
	cases := map[string]struct {
		phase   kubeannexv1alpha1.AnnexedGroupPhase
		serving kubeannexv1alpha1.ServingMode
		// forgotten says that this process did not see the comparison, fails what does not work in the cluster.
		forgotten bool
		fails     string
	}{
		"the cluster does not answer":        {phase: cuttingOver, serving: kubeannexv1alpha1.ServingReadOnly, fails: "*"},
		"new UIDs cannot be stored":          {phase: cuttingOver, serving: kubeannexv1alpha1.ServingReadOnly, fails: "configmaps"},
		"a kube-apiserver does not answer":   {phase: cuttingOver, serving: kubeannexv1alpha1.ServingReadOnly, fails: "readyz"},
		"writes pass already":                {phase: cuttingOver, serving: kubeannexv1alpha1.ServingOpen},
		"writes pass before the comparison":  {phase: verifying, serving: kubeannexv1alpha1.ServingOpen},
		"nobody remembers what was compared": {phase: verifying, serving: kubeannexv1alpha1.ServingReadOnly, forgotten: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status := annexedStatus(time.Now(), metav1.ConditionFalse)
			status.Phase, status.Serving = tc.phase, tc.serving
			l := startLab(t, setup{status: status, deleting: true, services: routes()})
			if !tc.forgotten {
				l.releases.start(l.annex.present(), nil).fenced = l.clock.Now()
			}
			broken := true
			if tc.fails == "readyz" {
				l.Connections.HostEndpoints = func(context.Context) ([]*cluster.Server, error) { return absentServer(t, broken), nil }
			} else if tc.fails != "" {
				l.kube.PrependReactor("*", tc.fails, func(clienttesting.Action) (bool, runtime.Object, error) {
					return broken, nil, errors.New("connection refused")
				})
			}
			group, _, _ := l.run(t)
			if diff := cmp.Diff("Releasing/Open", shortStatus(group)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			broken = false
			if group, _, err := l.run(t); err != nil || !slices.Contains(beginnings, group.Status.Phase) {
				t.Errorf("the next step leads to phase %s, error %v, want one that compares again", group.Status.Phase, err)
			}
			if diff := cmp.Diff(map[string]string{"v1": "annex", "v2": "annex"}, l.routed(t)); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
			for _, stored := range l.annex.stored {
				if phase, open := strings.CutSuffix(stored, "/Open"); open && !slices.Contains(beginnings, kubeannexv1alpha1.AnnexedGroupPhase(phase)) {
					t.Errorf("stored was %s: a process that dies then leaves a comparison that does not hold", stored)
				}
			}
			if l.annex.dropped > 0 {
				t.Error("annex's data were dropped")
			}
		})
	}
}

// absentServer is a kube-apiserver that does not answer any more, or none.
func absentServer(t *testing.T, absent bool) []*cluster.Server {
	t.Helper()
	if !absent {
		return nil
	}
	listener := httptest.NewServer(http.NotFoundHandler())
	listener.Close()
	server, err := cluster.NewServer("kube-apiserver 2", &rest.Config{Host: listener.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return []*cluster.Server{server}
}

// scriptedServer is a kube-apiserver whose answer to a list depends on the time:
// 0 breaks the connection, 200 is a list, everything else a refusal.
type scriptedServer struct {
	clock waitingClock
	begin time.Time
	code  func(since time.Duration) int
}

func (s *scriptedServer) ServeHTTP(response http.ResponseWriter, _ *http.Request) {
	switch code := s.code(s.clock.Since(s.begin)); code {
	case 0:
		if connection, _, err := http.NewResponseController(response).Hijack(); err == nil {
			connection.Close() //nolint:errcheck // as if the process had ended
		}
	case http.StatusOK:
		answer(response, code, &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}})
	case http.StatusTooManyRequests:
		refuse(response, code, metav1.StatusReasonTooManyRequests, "released")
	default:
		refuse(response, code, metav1.StatusReasonServiceUnavailable, "no")
	}
}

// TestEverybodyIsTold measures how long annex goes on answering 410 before the
// APIServices go back.
func TestEverybodyIsTold(t *testing.T) {
	const told = http.StatusTooManyRequests
	between := func(from, to time.Duration, code int) func(time.Duration) int {
		return func(since time.Duration) int {
			if since >= from && since < to {
				return code
			}
			return told
		}
	}
	steady := between(0, 0, 0)
	// They are asked with pauses, so the end of a silence is known as well as that.
	silentUntil := func(end time.Duration) time.Duration { return end + absentPause - longestPause }
	cases := map[string]struct {
		servers []func(time.Duration) int
		// earlier is how long annex answers 410 already.
		earlier time.Duration
		// want is when APIServices may go back, wantErr that they may not.
		want    time.Duration
		wantErr string
	}{
		"all pass it on":                 {servers: []func(time.Duration) int{steady, steady}, want: releasedPause},
		"all have done so for a while":   {servers: []func(time.Duration) int{steady}, earlier: 2 * time.Second, want: releasedPause - 2*time.Second},
		"one goes away for a moment":     {servers: []func(time.Duration) int{steady, between(2*time.Second, 3*time.Second, 0)}, want: silentUntil(3 * time.Second)},
		"one is away at the beginning":   {servers: []func(time.Duration) int{between(0, 10*time.Second, 0), steady}, want: silentUntil(10 * time.Second)},
		"one answers by itself at first": {servers: []func(time.Duration) int{between(0, time.Second, http.StatusOK)}, want: silentUntil(time.Second)},
		"one believes annex to be away":  {servers: []func(time.Duration) int{between(0, time.Second, http.StatusServiceUnavailable)}, want: silentUntil(time.Second)},
		"one goes away twice": {servers: []func(time.Duration) int{func(s time.Duration) int {
			return min(between(0, time.Second, 0)(s), between(20*time.Second, 21*time.Second, 0)(s))
		}}, want: silentUntil(21 * time.Second)},
		"one is gone":                      {servers: []func(time.Duration) int{steady, between(0, time.Hour, 0)}, want: absentPause + confirmTimeout, wantErr: "kube-apiserver 1"},
		"one never routes to annex at all": {servers: []func(time.Duration) int{between(0, time.Hour, http.StatusOK)}, want: absentPause + confirmTimeout, wantErr: "it answers"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			begin := time.Unix(1_000_000, 0)
			now := waitingClock{testingclock.NewFakeClock(begin)}
			var servers []*cluster.Server
			for i, code := range tc.servers {
				listener := httptest.NewServer(&scriptedServer{clock: now, begin: begin, code: code})
				t.Cleanup(listener.Close)
				server, err := cluster.NewServer("kube-apiserver "+string(rune('0'+i)), &rest.Config{Host: listener.URL, QPS: -1})
				if err != nil {
					t.Fatal(err)
				}
				servers = append(servers, server)
			}
			r := &Reconciler{Clock: now, Connections: cluster.Connections{
				HostEndpoints: func(context.Context) ([]*cluster.Server, error) { return servers, nil },
			}}
			err := r.tellEverybody(t.Context(), []schema.GroupVersionResource{{Group: labGroup, Version: "v1", Resource: "morphs"}}, begin.Add(releasedPause-tc.earlier))
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
			if took := now.Since(begin); took < tc.want || took > tc.want+3*longestPause {
				t.Errorf("it took %s, want %s", took, tc.want)
			}
		})
	}
}

// partialDiscovery is a cluster of whose groups some may not answer.
type partialDiscovery struct {
	kubernetes.Interface
	discovery.DiscoveryInterfaces

	lists []*metav1.APIResourceList
	err   error
}

// Discovery is that of the cluster.
func (p *partialDiscovery) Discovery() discovery.DiscoveryInterfaces { return p }

// ServerPreferredResources returns what answers beside the error, as client-go does.
func (p *partialDiscovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return p.lists, p.err
}

// TestDependentsAreLookedForEverywhere expects no answer where one cannot be complete.
func TestDependentsAreLookedForEverywhere(t *testing.T) {
	verbs := metav1.Verbs{"list", "patch"}
	lists := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Verbs: verbs}, {Name: "events", Kind: "Event", Verbs: verbs}}},
		{GroupVersion: labGroup + "/v1", APIResources: []metav1.APIResource{{Name: "morphs", Kind: "Morph", Verbs: verbs}}},
	}
	cases := map[string]struct {
		err  error
		want []dependent
	}{
		"every group answers": {want: []dependent{{resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, namespace: "ns", name: "owned"}}},
		"a group does not": {err: &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
			{Group: "metrics.test", Version: "v1"}: errors.New("503"),
		}}},
		"the cluster does not": {err: errors.New("metrics.test: connection refused")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, setup{})
			l.Connections.Host.Kube = &partialDiscovery{Interface: l.kube, lists: lists, err: tc.err}
			for _, object := range []*metav1.PartialObjectMetadata{
				{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owned", OwnerReferences: ownedBy("old")}},
				{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", OwnerReferences: ownedBy("x")}},
			} {
				if err := l.copies.Tracker().Add(object); err != nil {
					t.Fatal(err)
				}
			}
			found, err := l.findDependents(t.Context(), labGroup, hostcopy.Owners{"old": "new"})
			if tc.err == nil && err != nil || tc.err != nil && (!errors.Is(err, tc.err) || !strings.Contains(err.Error(), "metrics.test")) {
				t.Errorf("got %v, want %v", err, tc.err)
			}
			if !slices.Equal(found, tc.want) {
				t.Errorf("found %v, want %v", found, tc.want)
			}
		})
	}
}

// TestLeavingReplicasAreWaitedFor has a replica that ends with a write in hand:
// it shows the mode of before until the write is over.
func TestLeavingReplicasAreWaitedFor(t *testing.T) {
	for phase, wantAsked := range map[kubeannexv1alpha1.AnnexedGroupPhase]int32{
		kubeannexv1alpha1.PhaseReleaseFencing: 3,
		// It had no write of a group that annex did not serve yet.
		kubeannexv1alpha1.PhaseCuttingOver: 0,
	} {
		t.Run(string(phase), func(t *testing.T) {
			const mode = kubeannexv1alpha1.ServingReadOnly
			l := startLab(t, setup{status: kubeannexv1alpha1.AnnexedGroupStatus{Phase: phase}})
			var asked atomic.Int32
			listener := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
				status := &kubeannexv1alpha1.ReplicaStatus{Serving: mode}
				if asked.Add(1) < wantAsked {
					status.Serving = "before"
				}
				answer(response, http.StatusOK, status)
			}))
			t.Cleanup(listener.Close)
			leaving, err := cluster.NewServer("a replica that ends", &rest.Config{Host: listener.URL, QPS: -1})
			if err != nil {
				t.Fatal(err)
			}
			l.Connections.AnnexLeaving = func(context.Context) ([]*cluster.Server, error) { return []*cluster.Server{leaving}, nil }
			if err := l.serve(t.Context(), l.annex.present(), mode); err != nil {
				t.Error(err)
			}
			if asked.Load() != wantAsked {
				t.Errorf("it was asked %d times, want %d", asked.Load(), wantAsked)
			}
		})
	}
}
