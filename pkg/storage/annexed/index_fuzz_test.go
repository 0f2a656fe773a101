// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"slices"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/kubeannex/annex/test/env/testetcd"
)

// FuzzIndexesMissNothing holds what a cache with indexes offers to a request
// against what the request selects: every object that matches must be offered.
func FuzzIndexesMissNothing(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomBytes(seed, 60))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &dice{data: data}
		set, dropped := newIndexSet(gadgetIndexes(d.trigger()), gadgetAttributes(), newGadget())
		if len(dropped) > 0 {
			t.Fatalf("dropped %v", dropped)
		}
		config := cacher.Config{GetAttrsFunc: gadgetAttributes()}
		set.apply(&config)
		object, predicate := d.gadget("a", "n1"), d.predicate(t)
		selected, err := predicate.Matches(object)
		if err != nil {
			t.Fatal(err)
		}
		hinted, used := set.forList(predicate, oneOf(d, "", "a"))
		values := hinted.MatcherIndex(t.Context())
		if used != (len(values) > 0) {
			t.Errorf("index used: %v, but the cache is given %v", used, values)
		}
		for _, value := range values {
			function, ok := (*config.Indexers)[value.IndexName]
			if !ok {
				t.Fatalf("the cache has no index %q", value.IndexName)
			}
			offered, err := function(object)
			if err != nil {
				t.Fatal(err)
			}
			if selected && !slices.Contains(offered, value.Value) {
				t.Errorf("labels %q and fields %q select %v, but index %q has it under %q only", predicate.Label, predicate.Field, object, value.IndexName, offered)
			}
		}
		checkTrigger(t, set.forWatch(predicate), config.IndexerFuncs, selected, object)
	})
}

// checkTrigger repeats what the Cacher does to find the watches of an event.
func checkTrigger(t *testing.T, predicate storage.SelectionPredicate, triggers storage.IndexerFuncs, selected bool, object runtime.Object) {
	t.Helper()
	for _, field := range predicate.IndexFields {
		function, ok := triggers[field]
		if !ok {
			t.Fatalf("the cache has no trigger %q", field)
		}
		value, ok := predicate.Field.RequiresExactMatch(field)
		if ok && selected && function(object) != value {
			t.Errorf("labels %q and fields %q select %v, but no event of it is dispatched to them", predicate.Label, predicate.Field, object)
		}
	}
}

// FuzzIndexedStorage plays a program on an indexed and an unindexed storage; the first byte
// chooses whether the indexed one keeps compact objects. Run it with
// -fuzzminimizetime=1x: what it covers differs from run to run, so minimizing takes for ever.
func FuzzIndexedStorage(f *testing.F) {
	for seed := range uint64(10) {
		program := []byte{byte(seed % 2), byte(seed)}
		for burst := range byte(6) { // random programs have few of them
			program = append(program, burstStep, byte(seed)*6+burst)
		}
		f.Add(append(program, randomBytes(seed+100, 500)...))
	}
	// Nobody may log to f while the target runs.
	client := testetcd.Run(f, func(etcd *embed.Config) { etcd.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop()) })
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &dice{data: data}
		compact := oneOf(d, false, true)
		newTwinsOf(t, client, gadgetIndexes(d.trigger()), compact).play(t.Context(), t, d)
	})
}
