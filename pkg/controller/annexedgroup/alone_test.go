// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// TestStatusOfAnotherProcessIsKept writes a status in the middle of a step after
// somebody else has written the object.
func TestStatusOfAnotherProcessIsKept(t *testing.T) {
	finish := func(g *kubeannexv1alpha1.AnnexedGroup) {
		g.Status.Phase, g.Status.Serving = kubeannexv1alpha1.PhaseAnnexed, kubeannexv1alpha1.ServingOpen
	}
	remove := func(g *kubeannexv1alpha1.AnnexedGroup) { g.DeletionTimestamp = ptr.To(metav1.Now()) }
	cases := map[string]struct {
		phase  kubeannexv1alpha1.AnnexedGroupPhase
		change func(*kubeannexv1alpha1.AnnexedGroup)

		wantErr    error
		wantStored string
	}{
		"a user changed the spec": {
			phase:      kubeannexv1alpha1.PhaseCatchingUp,
			change:     func(g *kubeannexv1alpha1.AnnexedGroup) { g.Generation++; g.Spec.AllowNewUIDs = true },
			wantStored: "CatchingUp/Closed",
		},
		"a user deleted it before the cut-over": {
			phase: kubeannexv1alpha1.PhaseCatchingUp, change: remove, wantErr: errTurnBack, wantStored: "Preflight/",
		},
		"a user deleted it after the cut-over": {phase: kubeannexv1alpha1.PhaseUnfencing, change: remove, wantStored: "Unfencing/Closed"},
		"it was replaced": {
			phase: kubeannexv1alpha1.PhaseCatchingUp, change: func(g *kubeannexv1alpha1.AnnexedGroup) { g.UID = "another" },
			wantErr: errTurnBack, wantStored: "Preflight/",
		},
		"another leader has finished the move": {
			phase: kubeannexv1alpha1.PhaseCatchingUp, change: finish, wantErr: errNotAlone, wantStored: "Annexed/Open",
		},
		"another leader is in the middle": {
			phase:   kubeannexv1alpha1.PhaseFencing,
			change:  func(g *kubeannexv1alpha1.AnnexedGroup) { resourceStatus(g, "morphs").Copied = 5 },
			wantErr: errNotAlone, wantStored: "Preflight/",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, setup{status: kubeannexv1alpha1.AnnexedGroupStatus{Phase: kubeannexv1alpha1.PhasePreflight}})
			group := l.annex.present()
			l.known.set(group)
			l.annex.change(tc.change)
			group.Status.Phase, group.Status.Serving = tc.phase, kubeannexv1alpha1.ServingClosed
			if err := l.writeStatus(t.Context(), group); !errors.Is(err, tc.wantErr) {
				t.Errorf("got %v, want %v", err, tc.wantErr)
			}
			stored := l.annex.present()
			if diff := cmp.Diff(tc.wantStored, shortStatus(stored)); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
			if tc.wantErr == nil && group.ResourceVersion != stored.ResourceVersion {
				t.Errorf("the step has version %s, stored is %s", group.ResourceVersion, stored.ResourceVersion)
			}
		})
	}
}

// TestOwnStatusIsWrittenAgain expects a process to know what it wrote itself, also
// when a user writes in between.
func TestOwnStatusIsWrittenAgain(t *testing.T) {
	l := startLab(t, setup{status: kubeannexv1alpha1.AnnexedGroupStatus{Phase: kubeannexv1alpha1.PhaseCopying, Serving: kubeannexv1alpha1.ServingClosed}})
	group := l.annex.present()
	l.known.set(group)
	// A condition has a time, of which the server keeps whole seconds.
	setCondition(group, kubeannexv1alpha1.ConditionMirrored, metav1.ConditionTrue, "Mirrored", "")
	report := l.newReporter(group)
	for i := range 3 {
		resourceStatus(group, "morphs").Copied = int64(i)
		l.clock.Step(reportInterval)
		if err := report.report(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.annex.change(func(g *kubeannexv1alpha1.AnnexedGroup) { g.Labels = map[string]string{"team": "a"} })
	}
	if copied := resourceStatus(l.annex.present(), "morphs").Copied; copied != 2 {
		t.Errorf("stored are %d copied objects, want 2", copied)
	}
}

// TestFenceOfAnotherProcessStays takes the fence down as a step does that failed.
func TestFenceOfAnotherProcessStays(t *testing.T) {
	cases := map[string]struct {
		phase kubeannexv1alpha1.AnnexedGroupPhase
		// mine is the UID of the fence that this process has put up, "" for none.
		mine     types.UID
		wantKept bool
	}{
		"its own":                              {kubeannexv1alpha1.PhaseFencing, "present", false},
		"one of a process that has taken over": {kubeannexv1alpha1.PhaseFencing, "old", true},
		"the same after the comparison":        {kubeannexv1alpha1.PhaseCuttingOver, "old", true},
		"one of which it knows nothing":        {kubeannexv1alpha1.PhaseCopying, "", false},
		"any when annex is open":               {kubeannexv1alpha1.PhaseUnfencing, "old", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, setup{status: kubeannexv1alpha1.AnnexedGroupStatus{Phase: tc.phase}})
			group := l.annex.present()
			raised, err := l.fences().Raise(t.Context(), labGroup, l.clock.Now())
			if err != nil {
				t.Fatal(err)
			}
			if tc.mine != "" {
				own := *raised
				if tc.mine != "present" {
					own.UID = tc.mine
				}
				l.sessions.start(group, nil).fence = &own
				l.sessions.raised(own)
			}
			l.clock.Step(maxFence + time.Second)
			if err := l.lower(t.Context(), group); err != nil {
				t.Fatal(err)
			}
			present, err := l.fences().Get(t.Context(), labGroup)
			if err != nil {
				t.Fatal(err)
			}
			if kept := present != nil; kept != tc.wantKept {
				t.Errorf("the fence is kept: %t, want %t", kept, tc.wantKept)
			}
			if s := l.sessions.get(group); s != nil && s.fence != nil || len(l.sessions.standing()) > 0 {
				t.Error("this process still believes in its fence")
			}
		})
	}
}

// TestNothingIsDoneWithoutTheLease loses the lease before a step, or in it when
// what could harm the work of the new leader comes next.
func TestNothingIsDoneWithoutTheLease(t *testing.T) {
	copying := kubeannexv1alpha1.AnnexedGroupStatus{Phase: kubeannexv1alpha1.PhaseCopying, Serving: kubeannexv1alpha1.ServingClosed}
	cases := map[string]struct {
		status kubeannexv1alpha1.AnnexedGroupStatus
		// fenced says that a fence is up, asked how often the process still leads.
		fenced bool
		asked  int
	}{
		"before a copy":                      {status: copying},
		"before the group is taken up again": {status: annexedStatus(time.Now(), metav1.ConditionFalse)},
		"before data are dropped":            {status: copying, asked: 1},
		"before a fence is taken down":       {status: copying, fenced: true, asked: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, setup{status: tc.status, services: localRoutes()})
			if tc.fenced {
				if _, err := l.fences().Raise(t.Context(), labGroup, l.clock.Now()); err != nil {
					t.Fatal(err)
				}
			}
			left := tc.asked
			l.Leading = func(context.Context) (bool, error) {
				left--
				return left >= 0, nil
			}
			routes := l.routed(t)
			group, _, err := l.run(t)
			if !errors.Is(err, errNotAlone) {
				t.Errorf("got %v, want %v", err, errNotAlone)
			}
			if shortStatus(group) != string(tc.status.Phase)+"/"+string(tc.status.Serving) || l.annex.dropped > 0 || l.opened(t) {
				t.Errorf("the group is %s, data were dropped %d times, the private route is open: %t", shortStatus(group), l.annex.dropped, l.opened(t))
			}
			if diff := cmp.Diff(routes, l.routed(t)); diff != "" {
				t.Errorf("routes (-before +after):\n%s", diff)
			}
			present, err := l.fences().Get(t.Context(), labGroup)
			if err != nil || present == nil == tc.fenced {
				t.Errorf("the fence is %v, error %v, want one: %t", present, err, tc.fenced)
			}
		})
	}
}
