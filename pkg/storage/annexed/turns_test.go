// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestCachesAreBuiltInTurn declares indexes for two storages. While the first cannot
// fill its new cache, the second opens none, and can give up waiting.
func TestCachesAreBuiltInTurn(t *testing.T) {
	shared := newTurns(time.Hour)
	first, second := &changingIndexes{}, &changingIndexes{}
	stuck := newStack(t, cached, stackOptions{source: first, turns: shared})
	waiting := newStack(t, cached, stackOptions{source: second, turns: shared})
	lists := func(s *stack) uint64 { return s.metrics.Counts(podResource())[Request{CallerCache, OperationList}] }
	watches := func(s *stack) uint64 { return s.metrics.Counts(podResource())[Request{CallerCache, OperationWatch}] }

	createPod(t.Context(), t, stuck.settled(), "web")
	stuck.transformer.setFailing(true)
	listed, watched := lists(stuck), watches(waiting)
	declared := Indexes{Labels: []string{"app"}}
	first.change(declared)
	eventually(t, "first storage to build", func() bool { return lists(stuck) > listed })
	second.change(declared)
	// The Cacher tries once in a second. That is enough for the other one, were it its turn.
	eventually(t, "first storage to have failed again", func() bool { return lists(stuck) >= listed+3 })
	if inService(waiting.Interface, declared) || watches(waiting) != watched {
		t.Error("two storages build a cache at the same time")
	}
	second.change(Indexes{})
	eventually(t, "second storage to give up", func() bool { return inService(waiting.Interface, Indexes{}) })
	second.change(declared)

	stuck.transformer.setFailing(false)
	for _, s := range []*stack{stuck, waiting} {
		eventually(t, "declared indexes to be in service", func() bool { return inService(s.Interface, declared) })
	}
}

// TestDestroyEndsTheWaitForATurn destroys a storage that waits to build a cache.
func TestDestroyEndsTheWaitForATurn(t *testing.T) {
	shared, source := newTurns(time.Hour), &changingIndexes{}
	s := newStack(t, cached, stackOptions{source: source, turns: shared})
	giveBack, err := shared.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer giveBack()
	source.change(Indexes{Labels: []string{"app"}})
	s.destroy()
}

func TestTurnsEnd(t *testing.T) {
	shared := newTurns(time.Millisecond)
	late, err := shared.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next, err := shared.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late() // is not the turn of another
	next()

	kept := newTurns(time.Hour)
	giveBack, err := kept.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kept.take(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v for a turn that another has, want canceled", err)
	}
	giveBack()
	if _, err := kept.take(t.Context()); err != nil {
		t.Errorf("got error %v for a turn that was given back", err)
	}
}
