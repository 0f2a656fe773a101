// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

const (
	closed   = v1alpha1.ServingClosed
	readOnly = v1alpha1.ServingReadOnly
	open     = v1alpha1.ServingOpen
	released = v1alpha1.ServingReleased

	lab = "lab.test"
)

// syncedGate is a gate that has read all AnnexedGroups; there is none.
func syncedGate(metrics *Metrics) *Gate {
	gate := NewGate(metrics)
	gate.hasSynced = func() bool { return true }
	return gate
}

func mustAdmit(t *testing.T, gate *Gate, k kind) *pass {
	t.Helper()
	p, mode := gate.admit(lab, k, false, func(error) {})
	if p == nil {
		t.Fatalf("kind %d was refused in mode %s", k, mode)
	}
	return p
}

func assertServing(t *testing.T, gate *Gate, want v1alpha1.ServingMode) {
	t.Helper()
	if got := gate.Serving(lab); got != want {
		t.Errorf("mode in force: got %q, want %q", got, want)
	}
}

func TestAdmit(t *testing.T) {
	tests := map[string]struct {
		mode                             v1alpha1.ServingMode
		wantRead, wantWrite, wantWatches bool
	}{
		"closed":                 {mode: closed},
		"read-only":              {mode: readOnly, wantRead: true, wantWatches: true},
		"open":                   {mode: open, wantRead: true, wantWrite: true, wantWatches: true},
		"released":               {mode: released},
		"a mode of the future":   {mode: "Sideways"},
		"a group without object": {wantRead: true, wantWrite: true, wantWatches: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gate := syncedGate(nil)
			gate.set("other.test", closed)
			if tc.mode != "" {
				gate.set(lab, tc.mode)
			}
			for k, want := range map[kind]bool{read: tc.wantRead, write: tc.wantWrite, watch: tc.wantWatches} {
				p, mode := gate.admit(lab, k, false, func(error) {})
				if got := p != nil; got != want {
					t.Errorf("kind %d passes: got %t, want %t", k, got, want)
				}
				if p == nil && mode != tc.mode {
					t.Errorf("kind %d is refused by mode %q, want %q", k, mode, tc.mode)
				}
			}
		})
	}
}

func TestNothingPassesBeforeTheGroupsAreKnown(t *testing.T) {
	gate := NewGate(nil)
	if p, mode := gate.admit(lab, read, false, nil); p != nil || mode != starting {
		t.Errorf("without an informer: got %v and mode %q, want a refusal by %q", p, mode, starting)
	}
	synced := false
	gate.hasSynced = func() bool { return synced }
	if p, _ := gate.admit(lab, read, false, nil); p != nil {
		t.Error("a request passes before the informer has synced")
	}
	synced = true
	if p, _ := gate.admit(lab, read, false, nil); p == nil {
		t.Error("no request passes after the informer has synced")
	}
	if !gate.HasSynced() {
		t.Error("the gate does not say that it has synced")
	}
}

func TestAdmitWhatTheClusterSends(t *testing.T) {
	tests := map[string]struct {
		mode       v1alpha1.ServingMode
		forgotten  bool
		definition string
		direct     bool
		want       v1alpha1.ServingMode
	}{
		"a group that nothing is known of":           {want: unknown},
		"definitions of another group":               {definition: "other.test", want: unknown},
		"a definition and no object":                 {definition: lab},
		"an object and no definition":                {mode: open},
		"an object and a definition":                 {mode: open, definition: lab},
		"an object that refuses":                     {mode: closed, want: closed},
		"an object that is gone":                     {mode: released, forgotten: true, want: unknown},
		"an object that is gone, but the definition": {mode: released, forgotten: true, definition: lab},
		"a client that comes by itself":              {direct: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gate := syncedGate(nil)
			gate.hasDefinition = func(name string) bool { return name == tc.definition }
			if tc.mode != "" {
				gate.set(lab, tc.mode)
			}
			if tc.forgotten {
				gate.forget(lab)
			}
			for k := range transfer {
				p, mode := gate.admit(lab, k, !tc.direct, func(error) {})
				if mode != tc.want || (p == nil) != (tc.want != "") {
					t.Errorf("kind %d: got pass %v and mode %q, want mode %q", k, p, mode, tc.want)
				}
				if p != nil {
					p.leave()
				}
			}
		})
	}
}

// The request of an unknown group that is in flight makes it none that is known.
func TestRequestsInFlightDoNotMakeAGroupKnown(t *testing.T) {
	gate := syncedGate(nil)
	defer mustAdmit(t, gate, watch).leave()
	if p, mode := gate.admit(lab, read, true, nil); p != nil || mode != unknown {
		t.Errorf("got %v and mode %q, want a refusal by %q", p, mode, unknown)
	}
}

func TestModeComesIntoForceWhenWhatItForbidsIsOver(t *testing.T) {
	tests := map[string]struct {
		from, to v1alpha1.ServingMode
		// waits and passes are kinds in flight that do and do not hold the mode up.
		waits, passes []kind
	}{
		"reads do not hold a fence up":           {from: open, to: readOnly, waits: []kind{write}, passes: []kind{read, watch}},
		"nothing holds an opening up":            {from: readOnly, to: open, passes: []kind{read, watch}},
		"a release waits for everything":         {from: open, to: released, waits: []kind{read, write, watch}},
		"closing waits for everything":           {from: readOnly, to: closed, waits: []kind{read, watch}},
		"a release of a fenced group":            {from: readOnly, to: released, waits: []kind{read, watch}},
		"a fence after a moment of being opened": {from: open, to: readOnly, waits: []kind{write, write}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gate := syncedGate(nil)
			gate.set(lab, tc.from)
			var waits []*pass
			for _, k := range tc.waits {
				waits = append(waits, mustAdmit(t, gate, k))
			}
			for _, k := range tc.passes {
				defer mustAdmit(t, gate, k).leave()
			}
			gate.set(lab, tc.to)
			for _, p := range waits {
				assertServing(t, gate, tc.from)
				p.leave()
			}
			assertServing(t, gate, tc.to)
		})
	}
}

func TestModeThatNeverCameIntoForceIsNotReported(t *testing.T) {
	gate := syncedGate(nil)
	gate.set(lab, open)
	p := mustAdmit(t, gate, write)
	gate.set(lab, readOnly)
	gate.set(lab, released)
	assertServing(t, gate, open)
	gate.set(lab, open)
	assertServing(t, gate, open)
	gate.set(lab, readOnly)
	p.leave()
	assertServing(t, gate, readOnly)
}

func TestGroupThatAppearsWhileRequestsAreInFlight(t *testing.T) {
	gate := syncedGate(nil)
	assertServing(t, gate, "")
	p := mustAdmit(t, gate, write)
	gate.set(lab, closed)
	assertServing(t, gate, "")
	if _, _, ok := gate.Enter(lab, closed); ok {
		t.Error("an import may begin while a write is in flight")
	}
	p.leave()
	assertServing(t, gate, closed)
}

func TestWatchesEnd(t *testing.T) {
	tests := map[string]struct {
		to      v1alpha1.ServingMode
		wantEnd bool
	}{
		"not when writes are held back":    {to: readOnly},
		"not when the group opens":         {to: open},
		"when the group is released":       {to: released, wantEnd: true},
		"when the data are to be replaced": {to: closed, wantEnd: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gate := syncedGate(nil)
			gate.set(lab, open)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			p, _ := gate.admit(lab, watch, false, cancel)
			gate.set(lab, tc.to)
			if got := errors.Is(context.Cause(ctx), errWatchEnded); got != tc.wantEnd {
				t.Errorf("ended: got %t, want %t", got, tc.wantEnd)
			}
			p.leave()
			assertServing(t, gate, tc.to)
		})
	}
}

func TestImports(t *testing.T) {
	gate := syncedGate(nil)
	if _, mode, ok := gate.Enter(lab, closed); ok || mode != "" {
		t.Errorf("an unknown group: got mode %q, %t", mode, ok)
	}
	gate.set(lab, open)
	if _, mode, ok := gate.Enter(lab, closed); ok || mode != open {
		t.Errorf("an open group: got mode %q, %t", mode, ok)
	}
	gate.set(lab, closed)
	leave, _, ok := gate.Enter(lab, closed)
	if !ok {
		t.Fatal("a closed group refuses an import")
	}
	gate.set(lab, open)
	assertServing(t, gate, closed)
	leave()
	assertServing(t, gate, open)
	gate.set(lab, released)
	if leave, _, ok = gate.Enter(lab, closed, released); !ok {
		t.Fatal("a released group refuses a drop")
	}
	leave()
}

func TestGroupsAreForgotten(t *testing.T) {
	gate := syncedGate(nil)
	gate.set(lab, released)
	gate.forget(lab)
	gate.forget("unknown.test")
	p := mustAdmit(t, gate, watch)
	gate.set(lab, open)
	gate.forget(lab)
	assertServing(t, gate, "")
	p.leave()
	mustAdmit(t, gate, write).leave()
	if diff := cmp.Diff(0, len(gate.groups)); diff != "" {
		t.Errorf("groups that are kept (-want +got):\n%s", diff)
	}
}
