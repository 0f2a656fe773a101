// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

const podKey = podPrefix + "default/web"

func createPod(ctx context.Context, t *testing.T, s storage.Interface, name string) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := s.Create(ctx, podPrefix+"default/"+name, pod, out, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

// withoutProgress returns the counts less the progress requests, whose number
// depends on how long the cache had to wait.
func withoutProgress(counts Counts) Counts {
	maps.DeleteFunc(counts, func(request Request, _ uint64) bool { return request.Operation == OperationWatchProgress })
	return counts
}

// servedCase is one request and what it leaves behind in the counts.
type servedCase struct {
	// request is sent after an object was created at the given version and the
	// cache has started anew after that.
	request      func(ctx context.Context, s *stack, created string) error
	wantCached   Counts
	wantUncached Counts
}

func clientCounts(operation Operation) Counts { return Counts{{CallerClient, operation}: 1} }

func consistentRead() Counts {
	return Counts{{CallerConsistentRead, OperationCurrentResourceVersion}: 1}
}

// list sends opts, with the resourceVersion "created" replaced.
func list(opts storage.ListOptions) func(ctx context.Context, s *stack, created string) error {
	opts.Predicate, opts.Recursive = storage.Everything, true
	return func(ctx context.Context, s *stack, created string) error {
		opts := opts
		if opts.ResourceVersion == "created" {
			opts.ResourceVersion = created
		}
		return s.GetList(ctx, podPrefix, opts, &example.PodList{})
	}
}

func get(resourceVersion string) func(ctx context.Context, s *stack, created string) error {
	return func(ctx context.Context, s *stack, _ string) error {
		return s.Get(ctx, podKey, storage.GetOptions{ResourceVersion: resourceVersion}, &example.Pod{})
	}
}

func watchAll(opts storage.ListOptions) func(ctx context.Context, s *stack, created string) error {
	opts.Predicate, opts.Recursive = storage.Everything, true
	opts.Predicate.AllowWatchBookmarks = true
	return func(ctx context.Context, s *stack, _ string) error {
		w, err := s.Watch(ctx, podPrefix, opts)
		if err == nil {
			w.Stop()
		}
		return err
	}
}

func readCases() map[string]servedCase {
	return map[string]servedCase{
		"get of the latest goes to etcd": {
			request: get(""), wantCached: clientCounts(OperationGet), wantUncached: clientCounts(OperationGet),
		},
		"get of any version is served from the cache": {
			request: get("0"), wantCached: Counts{}, wantUncached: clientCounts(OperationGet),
		},
		"list of the latest is a consistent read from the cache": {
			request:    list(storage.ListOptions{}),
			wantCached: consistentRead(), wantUncached: clientCounts(OperationList),
		},
		"list of any version is served from the cache": {
			request:    list(storage.ListOptions{ResourceVersion: "0"}),
			wantCached: Counts{}, wantUncached: clientCounts(OperationList),
		},
		"list not older than the creation is served from the cache": {
			request:    list(storage.ListOptions{ResourceVersion: "created", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}),
			wantCached: Counts{}, wantUncached: clientCounts(OperationList),
		},
		"list at a version that the cache no longer has goes to etcd": {
			request:    list(storage.ListOptions{ResourceVersion: "created", ResourceVersionMatch: metav1.ResourceVersionMatchExact}),
			wantCached: clientCounts(OperationList), wantUncached: clientCounts(OperationList),
		},
		"watch from any version is served from the cache": {
			request:    watchAll(storage.ListOptions{ResourceVersion: "0"}),
			wantCached: Counts{}, wantUncached: clientCounts(OperationWatch),
		},
		"watch with initial events of the latest is a consistent read from the cache": {
			request:    watchAll(storage.ListOptions{SendInitialEvents: new(true)}),
			wantCached: consistentRead(), wantUncached: clientCounts(OperationWatch),
		},
	}
}

func otherCases() map[string]servedCase {
	return map[string]servedCase{
		"create": {
			request: func(ctx context.Context, s *stack, _ string) error {
				return s.Create(ctx, podPrefix+"default/other", &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, nil, 0)
			},
			wantCached: clientCounts(OperationCreate), wantUncached: clientCounts(OperationCreate),
		},
		"update": {
			request: func(ctx context.Context, s *stack, _ string) error {
				label := storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
					obj.(*example.Pod).Labels = map[string]string{"app": "web"}
					return obj, nil
				})
				return s.GuaranteedUpdate(ctx, podKey, &example.Pod{}, false, nil, label, nil)
			},
			wantCached: clientCounts(OperationUpdate), wantUncached: clientCounts(OperationUpdate),
		},
		"failed delete counts too": {
			request: func(ctx context.Context, s *stack, _ string) error {
				err := s.Delete(ctx, podPrefix+"default/none", &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
				if !storage.IsNotFound(err) {
					return fmt.Errorf("got error %w, want not found", err)
				}
				return nil
			},
			wantCached: clientCounts(OperationDelete), wantUncached: clientCounts(OperationDelete),
		},
		"stats are the monitor's": {
			request: func(ctx context.Context, s *stack, _ string) error {
				_, err := s.Stats(ctx)
				return err
			},
			wantCached:   Counts{{CallerMonitor, OperationStats}: 1, {CallerMonitor, OperationCurrentResourceVersion}: 1},
			wantUncached: Counts{{CallerMonitor, OperationStats}: 1},
		},
		"current resource version": {
			request: func(ctx context.Context, s *stack, _ string) error {
				_, err := s.GetCurrentResourceVersion(ctx)
				return err
			},
			wantCached:   clientCounts(OperationCurrentResourceVersion),
			wantUncached: clientCounts(OperationCurrentResourceVersion),
		},
		"calls that are no requests": {
			request: func(_ context.Context, s *stack, _ string) error {
				s.Versioner()
				s.CompactRevision()
				return s.ReadinessCheck()
			},
			wantCached: Counts{}, wantUncached: Counts{},
		},
	}
}

// TestWhoServed is the reading guide of Metrics as a table.
func TestWhoServed(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.WatchList, true)
	cases := readCases()
	maps.Copy(cases, otherCases())
	for _, m := range []mode{cached, uncached} {
		s := newStack(t, m, stackOptions{})
		pod := createPod(t.Context(), t, s.settled(), "web")
		s.increaseRevision(t.Context(), t)
		s.relist(t)
		for name, tc := range cases {
			t.Run(string(m)+"/"+name, func(t *testing.T) {
				before := s.metrics.Counts(podResource())
				if err := tc.request(t.Context(), s, pod.ResourceVersion); err != nil {
					t.Fatal(err)
				}
				want := tc.wantCached
				if m == uncached {
					want = tc.wantUncached
				}
				got := withoutProgress(s.metrics.Counts(podResource()).Sub(before))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("counts (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestCacheTrafficIsNotTheClients starts a cache, lets it read everything anew
// and lets it ask for progress, with a client that does nothing but read.
func TestCacheTrafficIsNotTheClients(t *testing.T) {
	s := newStack(t, cached, stackOptions{})
	counts := s.metrics.Counts(podResource())
	if counts[Request{CallerCache, OperationWatch}] == 0 {
		t.Errorf("got counts %v, want a watch by the cache", counts)
	}

	revision := s.increaseRevision(t.Context(), t)
	s.compactAndRelist(t.Context(), t, fmt.Sprint(revision))
	s.increaseRevision(t.Context(), t)
	// The cache has not seen the last revision, and no event will tell it.
	if err := s.GetList(t.Context(), podPrefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, &example.PodList{}); err != nil {
		t.Fatal(err)
	}
	counts = s.metrics.Counts(podResource())
	for _, operation := range []Operation{OperationWatch, OperationWatchProgress} {
		if counts[Request{CallerCache, operation}] == 0 {
			t.Errorf("got counts %v, want %s by the cache", counts, operation)
		}
	}
	for request := range counts {
		if request.Caller == CallerClient {
			t.Errorf("got %v counted for a client, want nothing but the cache's traffic", request)
		}
	}
}

// TestConsistencyCheckIsNotTheClients runs upstream's checker over the same two
// storages that the delegator hands to its own.
func TestConsistencyCheckIsNotTheClients(t *testing.T) {
	s := newStack(t, cached, stackOptions{})
	createPod(t.Context(), t, s.settled(), "web")
	before := s.metrics.Counts(podResource())

	delegated := &countingStore{store: s.raw, counts: s.metrics.forResource(podResource()), callerOf: callerOfDelegated}
	checker := consistency.NewChecker(podPrefix, podResource(), newPodList, readyCache{s.inner()}, delegated)
	digests, err := checker.CalculateDigests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if digests.CacheDigest != digests.EtcdDigest {
		t.Errorf("cache and etcd differ: %+v", digests)
	}
	want := Counts{{CallerConsistencyCheck, OperationList}: 1}
	if diff := cmp.Diff(want, s.metrics.Counts(podResource()).Sub(before)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// inner returns the layer below the decorator.
func (s *stack) inner() storage.Interface { return s.Interface.(*store).inner }

// readyCache is a cache as the checker wants it.
type readyCache struct{ storage.Interface }

func (readyCache) Ready() bool         { return true }
func (readyCache) MarkConsistent(bool) {}
