// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// pauseAttempts is how many adoptions are begun to pause one in a phase that may last for milliseconds.
const pauseAttempts = 5

// TestPausedLeader pauses the leading controller for longer than its lease, as a
// suspended machine does. It goes on in the middle of its step when the other one
// has finished the adoption, and must not undo anything.
func TestPausedLeader(t *testing.T) {
	suite.cluster.HealAfter(t)
	for _, phase := range []kubeannexv1alpha1.AnnexedGroupPhase{kubeannexv1alpha1.PhaseCatchingUp, kubeannexv1alpha1.PhaseFencing} {
		t.Run(string(phase), func(t *testing.T) {
			for attempt := range pauseAttempts {
				if survivePause(t, fmt.Sprintf("paused-%s-%d.annex.test", strings.ToLower(string(phase)), attempt), phase) || t.Failed() {
					return
				}
			}
			t.Errorf("%d adoptions were past %s before the leader could be paused", pauseAttempts, phase)
		})
	}
}

// survivePause returns whether the leader was paused in the phase.
func survivePause(t *testing.T, name string, phase kubeannexv1alpha1.AnnexedGroupPhase) bool {
	t.Helper()
	cluster := suite.cluster
	group := cluster.NewGroup(t, name, nil)
	group.Seed(t, 100, 20)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	recorder := group.Record(t, cluster.HostConfig(t, 1), group.Gadgets("v1"))
	writers := group.StartWriters(t, 2, cluster.HostConfig(t, 0), cluster.HostConfig(t, 1))
	leader := cluster.Leader(t)
	begin := time.Now()
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	group.WaitReached(t, phase)
	if err := leader.Pause(); err != nil {
		t.Fatal(err)
	}
	// A test that fails in between must not leave it paused.
	t.Cleanup(func() { goOn(t, leader) })
	reached := group.WaitReached(t, phase)
	group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
	if other := cluster.Leader(t); other == leader {
		t.Logf("%s was past %s and the group annexed before the lease was over", leader.Name(), reached)
	}
	t.Logf("%s paused in %s, annexed %s after the start", leader.Name(), reached, time.Since(begin).Round(time.Millisecond))
	waitOtherLeader(t, leader)

	states := watchStates(t, group)
	logged := len(leader.Log())
	goOn(t, leader)
	// Who has lost the lease ends; until then it goes on with its step.
	select {
	case <-leader.Exited():
	case <-scenario.Context(t).Done():
		t.Fatalf("%s goes on although it does not lead any more", leader.Name())
	}
	logComplaints(t, leader, logged)
	writers.WaitWrites(t, 40)
	if err := cluster.Heal(scenario.Context(t)); err != nil {
		t.Fatal(err)
	}
	writers.WaitWrites(t, 40)
	writers.Stop()
	t.Log(writers.Summary())
	for _, state := range states() {
		t.Errorf("after the other controller had finished the group was %s, want Annexed/Open", state)
	}
	group.MustBeAnnexed(t, before)
	writers.MustBeKept(t, group)
	recorder.MustBeQuietAndAlive(t)
	t.Log(recorder.Summary())
	return reached == phase
}

// logComplaints shows the first errors of what a process has logged since then.
func logComplaints(t *testing.T, process *env.Process, since int) {
	t.Helper()
	const most = 3
	shown := 0
	for line := range strings.Lines(process.Log()[since:]) {
		if strings.HasPrefix(line, "E") && shown < most {
			shown++
			t.Logf("%s went on: %.200s", process.Name(), strings.TrimSpace(line))
		}
	}
}

func goOn(t *testing.T, process *env.Process) {
	t.Helper()
	if err := process.Continue(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}

// waitOtherLeader waits until another controller than this one has the lease.
func waitOtherLeader(t *testing.T, paused *env.Process) {
	t.Helper()
	err := scenario.Poll(scenario.Context(t), func(context.Context) error {
		if suite.cluster.Leader(t) == paused {
			return errors.New("the other one does not lead yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// watchStates begins to watch an AnnexedGroup that is annexed. What it returns
// ends that and tells all other states that were seen.
func watchStates(t *testing.T, group *scenario.Group) func() []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	var others []string
	go func() {
		defer close(done)
		// It ends with the context only.
		_ = group.Follow(ctx, func(g *kubeannexv1alpha1.AnnexedGroup) bool {
			state := "absent"
			if g != nil {
				state = fmt.Sprintf("%s/%s", g.Status.Phase, g.Status.Serving)
			}
			if state != "Annexed/Open" && !slices.Contains(others, state) {
				others = append(others, state)
			}
			return false
		})
	}()
	return func() []string {
		cancel()
		<-done
		return others
	}
}
