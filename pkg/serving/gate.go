// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"sync"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// errWatchEnded is why the gate cancels a watch.
var errWatchEnded = errors.New("the group is no longer served here")

// Modes that no AnnexedGroup has. They stand in metrics only.
const (
	// starting is the mode of every group before the AnnexedGroups and the definitions were read.
	starting v1alpha1.ServingMode = "Starting"
	// unknown is the mode of a group that the cluster routes here and that has
	// neither an AnnexedGroup nor a definition.
	unknown v1alpha1.ServingMode = "Unknown"
	// untrusting is the mode of everything before the server knows whom to trust, see WithTrust.
	untrusting v1alpha1.ServingMode = "Untrusting"
)

// kind is what the gate tells requests apart by.
type kind int

const (
	read kind = iota
	write
	watch
	transfer // an import or a drop, which the gate itself lets in
	kinds
)

// Gate decides which requests pass. It is safe for concurrent use.
type Gate struct {
	metrics *Metrics

	lock sync.Mutex
	// hasSynced and hasDefinition are nil until informers are followed.
	hasSynced     func() bool
	hasDefinition func(name string) bool
	synced        bool
	groups        map[string]*group
}

// group is one API group that is gated or has requests in flight.
type group struct {
	gated bool
	// mode is what new requests meet. inForce is the last mode that was fully applied.
	mode, inForce v1alpha1.ServingMode
	inFlight      [kinds]int
	watches       map[*pass]struct{}
}

// pass is one request that was let through.
type pass struct {
	gate *Gate
	name string
	kind kind
	// end cancels a watch. It is nil for other requests.
	end context.CancelCauseFunc
}

// NewGate returns a gate that refuses everything until it follows informers
// and these have synced. Nil metrics are not counted.
func NewGate(metrics *Metrics) *Gate {
	return &Gate{metrics: metrics, groups: map[string]*group{}}
}

// HasSynced reports whether all AnnexedGroups and all definitions were read once.
func (g *Gate) HasSynced() bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.syncedLocked()
}

func (g *Gate) syncedLocked() bool {
	if !g.synced && g.hasSynced != nil {
		g.synced = g.hasSynced()
	}
	return g.synced
}

// Serving is the mode that this process has in force for a group: new requests
// meet it, and those that it does not allow are over. While they are not, it is
// the mode before. It is empty for a group whose AnnexedGroup this process does not know.
func (g *Gate) Serving(name string) v1alpha1.ServingMode {
	g.lock.Lock()
	defer g.lock.Unlock()
	state, ok := g.groups[name]
	if !ok || !state.gated {
		return ""
	}
	state.settle()
	return state.inForce
}

// Enter lets an import or a drop in when the group is in one of the given modes
// and the mode is in force. The caller calls leave when it is over; until then no
// other mode comes into force. Otherwise it returns the mode that new requests meet.
func (g *Gate) Enter(name string, allowed ...v1alpha1.ServingMode) (leave func(), mode v1alpha1.ServingMode, ok bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	state, known := g.groups[name]
	if !known || !state.gated {
		return nil, "", false
	}
	state.settle()
	for _, candidate := range allowed {
		if state.mode == candidate && state.inForce == candidate {
			p := g.passLocked(name, transfer, nil)
			return p.leave, candidate, true
		}
	}
	return nil, state.mode, false
}

// set makes a group gated in a mode.
func (g *Gate) set(name string, mode v1alpha1.ServingMode) {
	g.lock.Lock()
	defer g.lock.Unlock()
	state := g.stateLocked(name)
	if state.gated && state.mode == mode {
		return
	}
	if state.gated {
		state.settle()
	}
	state.gated, state.mode = true, mode
	if endsWatches(mode) {
		for p := range state.watches {
			p.end(errWatchEnded)
		}
	}
	state.settle()
}

// forget makes a group one that is not gated.
func (g *Gate) forget(name string) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if state, ok := g.groups[name]; ok {
		state.gated, state.mode, state.inForce = false, "", ""
		g.dropIfIdleLocked(name, state)
	}
}

// admit lets a request through, or returns the mode that refuses it. proxied
// says that the cluster has sent it. end is called when a watch has to end.
func (g *Gate) admit(name string, k kind, proxied bool, end context.CancelCauseFunc) (*pass, v1alpha1.ServingMode) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if !g.syncedLocked() {
		return nil, starting
	}
	state, ok := g.groups[name]
	switch gated := ok && state.gated; {
	case gated && !allows(state.mode, k):
		return nil, state.mode
	case !gated && proxied && !g.hasDefinitionLocked(name):
		return nil, unknown
	}
	return g.passLocked(name, k, end), ""
}

func (g *Gate) hasDefinitionLocked(name string) bool {
	return g.hasDefinition != nil && g.hasDefinition(name)
}

func (g *Gate) passLocked(name string, k kind, end context.CancelCauseFunc) *pass {
	state := g.stateLocked(name)
	p := &pass{gate: g, name: name, kind: k, end: end}
	state.inFlight[k]++
	if k == watch {
		state.watches[p] = struct{}{}
	}
	return p
}

// leave says that the request is over. It must be called once.
func (p *pass) leave() {
	p.gate.lock.Lock()
	defer p.gate.lock.Unlock()
	state := p.gate.groups[p.name]
	state.inFlight[p.kind]--
	delete(state.watches, p)
	if state.gated {
		state.settle()
	}
	p.gate.dropIfIdleLocked(p.name, state)
}

func (g *Gate) stateLocked(name string) *group {
	state, ok := g.groups[name]
	if !ok {
		state = &group{watches: map[*pass]struct{}{}}
		g.groups[name] = state
	}
	return state
}

// dropIfIdleLocked keeps the map as small as what is gated or in flight.
func (g *Gate) dropIfIdleLocked(name string, state *group) {
	if !state.gated && state.inFlight == [kinds]int{} {
		delete(g.groups, name)
	}
}

// settle brings the mode into force when nothing is in flight that it does not allow.
func (s *group) settle() {
	if s.inForce == s.mode {
		return
	}
	for k := range kinds {
		if s.inFlight[k] > 0 && !allows(s.mode, k) {
			return
		}
	}
	s.inForce = s.mode
}

// allows is the table in the description of the package. A mode that is not
// known, as one of a newer version, is closed.
func allows(mode v1alpha1.ServingMode, k kind) bool {
	switch mode {
	case v1alpha1.ServingOpen:
		return k != transfer
	case v1alpha1.ServingReadOnly:
		return k == read || k == watch
	default:
		return false
	}
}

// endsWatches reports whether running watches must not see what comes next: the
// data are dropped or imported then.
func endsWatches(mode v1alpha1.ServingMode) bool {
	return !allows(mode, watch)
}
