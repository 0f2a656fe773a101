// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

func everyPod() storage.ListOptions {
	return storage.ListOptions{Predicate: storage.Everything, Recursive: true}
}

// fills is how often the caches of a stack have begun to read everything, by a list or by a
// watch that sends it.
func (s *stack) fills() uint64 {
	counts := s.metrics.Counts(podResource())
	return counts[Request{CallerCache, OperationList}] + counts[Request{CallerCache, OperationWatch}]
}

// caches is the number of caches of a stack according to its metrics.
func (s *stack) caches() int {
	return s.metrics.Caches()[podResource().WithVersion("")].Caches
}

// TestWhatStartsACache makes one call of every kind.
func TestWhatStartsACache(t *testing.T) {
	list := func(opts storage.ListOptions) func(context.Context, storage.Interface) error {
		opts.Recursive = true
		return func(ctx context.Context, s storage.Interface) error {
			return s.GetList(ctx, podPrefix, opts, newPodList())
		}
	}
	get := func(opts storage.GetOptions) func(context.Context, storage.Interface) error {
		return func(ctx context.Context, s storage.Interface) error {
			return s.Get(ctx, podPrefix+"default/web", opts, newPod())
		}
	}
	selective := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.OneTermEqualSelector("spec.nodeName", "a"), GetAttrs: podAttributes}
	for name, tc := range map[string]struct {
		call func(context.Context, storage.Interface) error
		want int
	}{
		"get of the latest state": {call: get(storage.GetOptions{})},
		"update": {call: func(ctx context.Context, s storage.Interface) error {
			return s.GuaranteedUpdate(ctx, podPrefix+"default/web", newPod(), false, nil, func(input runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
				pod := input.(*example.Pod)
				pod.Labels = map[string]string{"updated": "true"}
				return pod, nil, nil
			}, nil)
		}},
		"delete": {call: func(ctx context.Context, s storage.Interface) error {
			return s.Delete(ctx, podPrefix+"default/web", newPod(), nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		}},
		"statistics": {call: func(ctx context.Context, s storage.Interface) error {
			stats, err := s.Stats(ctx)
			if err == nil && stats.ObjectCount != 1 {
				return errors.New("got " + strconv.FormatInt(stats.ObjectCount, 10) + " objects, want 1")
			}
			return err
		}},
		"current revision": {call: func(ctx context.Context, s storage.Interface) error {
			_, err := s.GetCurrentResourceVersion(ctx)
			return err
		}},
		"progress":   {call: func(ctx context.Context, s storage.Interface) error { return s.RequestWatchProgress(ctx) }},
		"readiness":  {call: func(_ context.Context, s storage.Interface) error { return s.ReadinessCheck() }},
		"compaction": {call: func(_ context.Context, s storage.Interface) error { _ = s.CompactRevision(); return nil }},
		"explained list": {call: func(ctx context.Context, s storage.Interface) error {
			ctx, _ = WithExplanation(ctx)
			return list(everyPod())(ctx, s)
		}},
		"explained watch": {call: func(ctx context.Context, s storage.Interface) error {
			ctx, _ = WithExplanation(ctx)
			_, err := s.Watch(ctx, podPrefix, everyPod())
			return err
		}},
		"explained get at any revision": {call: func(ctx context.Context, s storage.Interface) error {
			ctx, _ = WithExplanation(ctx)
			return get(storage.GetOptions{ResourceVersion: "0"})(ctx, s)
		}},
		"get at any revision":                  {call: get(storage.GetOptions{ResourceVersion: "0"}), want: 1},
		"list":                                 {call: list(everyPod()), want: 1},
		"list at any revision with a selector": {call: list(storage.ListOptions{ResourceVersion: "0", Predicate: selective}), want: 1},
		"watch": {call: func(ctx context.Context, s storage.Interface) error {
			watched, err := s.Watch(ctx, podPrefix, everyPod())
			if err == nil {
				watched.Stop()
			}
			return err
		}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, cached, stackOptions{lazy: true})
			createPod(t.Context(), t, s, "web")
			if err := tc.call(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			eventually(t, "cache to be started", func() bool { return s.caches() == tc.want && (s.fills() > 0) == (tc.want > 0) })
			eventually(t, "duration of the fill to be known", func() bool {
				return (s.metrics.Caches()[podResource().WithVersion("")].Fill > 0) == (tc.want > 0)
			})
		})
	}
}

// TestFirstListKnowsEverything asks a cache that is not there for what was written before,
// while others write on.
func TestFirstListKnowsEverything(t *testing.T) {
	onNode := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.OneTermEqualSelector("metadata.name", "web"), GetAttrs: podAttributes}
	for name, opts := range map[string]func(revision string) storage.ListOptions{
		"any revision": func(string) storage.ListOptions { return storage.ListOptions{ResourceVersion: "0", Predicate: onNode} },
		"latest state": func(string) storage.ListOptions { return storage.ListOptions{Predicate: onNode} },
		"not older than": func(revision string) storage.ListOptions {
			return storage.ListOptions{ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Predicate: onNode}
		},
		"exactly at": func(revision string) storage.ListOptions {
			return storage.ListOptions{ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Predicate: onNode}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, cached, stackOptions{lazy: true, declared: Indexes{Fields: []string{"metadata.name"}}})
			ctx, cancel := context.WithCancel(t.Context())
			var writing sync.WaitGroup
			defer writing.Wait()
			defer cancel()
			for writer := range 2 {
				writing.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						createPod(t.Context(), t, s, "w"+strconv.Itoa(writer)+"-"+strconv.Itoa(i))
					}
				})
			}
			web := createPod(t.Context(), t, s, "web")
			list, opts := &example.PodList{}, opts(web.ResourceVersion)
			opts.Recursive = true
			if err := s.GetList(t.Context(), podPrefix, opts, list); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 1 || list.Items[0].ResourceVersion != web.ResourceVersion {
				t.Errorf("got %v, want the pod of revision %s", list.Items, web.ResourceVersion)
			}
		})
	}
}

// TestEtcdAnswersWhatNeedsNoCache asks while the cache cannot be filled for what upstream
// has etcd answer then.
func TestEtcdAnswersWhatNeedsNoCache(t *testing.T) {
	list := func(change func(opts *storage.ListOptions, revision string)) func(context.Context, storage.Interface, string) error {
		return func(ctx context.Context, s storage.Interface, revision string) error {
			opts, pods := everyPod(), &example.PodList{}
			change(&opts, revision)
			if err := s.GetList(ctx, podPrefix, opts, pods); err != nil || len(pods.Items) != 1 {
				return fmt.Errorf("got %d pods and error %w, want 1 pod", len(pods.Items), err)
			}
			return nil
		}
	}
	limited := func(version string) func(context.Context, storage.Interface, string) error {
		return list(func(opts *storage.ListOptions, _ string) { opts.ResourceVersion, opts.Predicate.Limit = version, 500 })
	}
	get := func(version func(string) string) func(context.Context, storage.Interface, string) error {
		return func(ctx context.Context, s storage.Interface, revision string) error {
			return s.Get(ctx, podPrefix+"default/web", storage.GetOptions{ResourceVersion: version(revision)}, newPod())
		}
	}
	for name, read := range map[string]func(ctx context.Context, s storage.Interface, revision string) error{
		"page of the latest state": limited(""),
		"page of any state":        limited("0"),
		"exactly at a revision": list(func(opts *storage.ListOptions, revision string) {
			opts.ResourceVersion, opts.ResourceVersionMatch = revision, metav1.ResourceVersionMatchExact
		}),
		"get of any state":        get(func(string) string { return "0" }),
		"get not older than":      get(func(revision string) string { return revision }),
		"get of the latest state": get(func(string) string { return "" }),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, cached, stackOptions{lazy: true})
			web := createPod(t.Context(), t, s, "web")
			r := rotationOf(s.Interface)
			fill, filled := r.fill, make(chan struct{})
			r.fill = func() error {
				<-filled
				return fill()
			}
			defer close(filled)
			for full := range 2 {
				ctx, recorder := WithRecorder(t.Context())
				if err := read(ctx, s, web.ResourceVersion); err != nil {
					t.Errorf("with %d of %d waiting: %v", len(r.queue), cap(r.queue), err)
				}
				if reading, _ := recorder.Reading(); reading.Source != SourceEtcd {
					t.Errorf("with %d of %d waiting: got %+v, want a read from etcd", len(r.queue), cap(r.queue), reading)
				}
				for full == 0 && len(r.queue) < cap(r.queue) {
					r.queue <- struct{}{}
				}
			}
		})
	}
}

// TestRequestsShareTheFirstCache lets many ask while etcd is slow. One gives up, and those
// for whom there is no room are sent away.
func TestRequestsShareTheFirstCache(t *testing.T) {
	s := newStack(t, cached, stackOptions{lazy: true})
	createPod(t.Context(), t, s, "web")
	release := s.transformer.hold()
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- s.GetList(ctx, podPrefix, everyPod(), newPodList()) }()
	eventually(t, "a cache to read", func() bool { return s.fills() > 0 })
	start := rotationOf(s.Interface).startOnce()
	results := make(chan error, firstFillQueue-1)
	for i := range cap(results) {
		go func() {
			opts := everyPod()
			if i%2 == 0 {
				opts.ResourceVersion = "0"
			}
			list := &example.PodList{}
			err := s.GetList(t.Context(), podPrefix, opts, list)
			if err == nil && len(list.Items) != 1 {
				err = errors.New("got " + strconv.Itoa(len(list.Items)) + " pods, want 1")
			}
			results <- err
		}()
	}
	eventually(t, "all to wait", func() bool { return len(start.queue) == firstFillQueue })
	for range 2 {
		err := s.GetList(t.Context(), podPrefix, everyPod(), newPodList())
		if after, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || after != 1 {
			t.Errorf("list for which there is no room ended with %v, want 429 that asks to wait for a second", err)
		}
	}
	cancel()
	if err := <-first; !apierrors.IsTimeout(err) {
		t.Errorf("list of a client that has gone ended with %v, want a timeout", err)
	}
	select {
	case err := <-results:
		t.Fatalf("a list ended before there was anything to list: %v", err)
	default:
	}
	release()
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if got := s.caches(); got != 1 {
		t.Errorf("got %d caches, want 1", got)
	}
}

// TestPatienceEnds has a cache that cannot be filled, and one that is not in time. Upstream
// decides then.
func TestPatienceEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		patience time.Duration
		hinder   func(*steeredTransformer) (mend func())
	}{
		"cannot be filled": {patience: time.Hour, hinder: func(transformer *steeredTransformer) func() {
			transformer.setFailing(true)
			return func() { transformer.setFailing(false) }
		}},
		"takes too long": {patience: 50 * time.Millisecond, hinder: (*steeredTransformer).hold},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, cached, stackOptions{lazy: true})
			r := rotationOf(s.Interface)
			r.patience = tc.patience
			createPod(t.Context(), t, s, "web")
			mend := tc.hinder(s.transformer)
			refusesUntilFilled(t, s, mend)
			eventually(t, "the revision of the fill to be known", func() bool {
				r.lock.RLock()
				defer r.lock.RUnlock()
				return r.late.filled > r.late.born
			})
		})
	}
}

// refusesUntilFilled checks that a cache refuses what etcd must not be asked, until it is
// filled after mend was called.
func refusesUntilFilled(t *testing.T, s *stack, mend func()) {
	t.Helper()
	if err := s.GetList(t.Context(), podPrefix, everyPod(), newPodList()); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v, want 429", err)
	}
	if _, err := s.Watch(t.Context(), podPrefix, everyPod()); !apierrors.IsTooManyRequests(err) {
		t.Errorf("watch: got %v, want 429", err)
	}
	mend()
	eventually(t, "list to be answered", func() bool { return s.GetList(t.Context(), podPrefix, everyPod(), newPodList()) == nil })
}

// TestDestroyWhileStarting destroys a storage at the very start of its first cache, and while
// that cannot be filled.
func TestDestroyWhileStarting(t *testing.T) {
	for name, failing := range map[string]bool{"at once": false, "while it cannot be filled": true} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, cached, stackOptions{lazy: true})
			createPod(t.Context(), t, s, "web")
			s.transformer.setFailing(failing)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = s.GetList(t.Context(), podPrefix, everyPod(), newPodList())
			}()
			eventually(t, "a cache to be started", func() bool {
				r := rotationOf(s.Interface)
				r.lock.RLock()
				defer r.lock.RUnlock()
				return r.lazyStart != nil && (!failing || r.current != nil)
			})
			s.destroy()
			select {
			case <-ended:
			case <-time.After(restPeriod):
				t.Fatal("a list waits for a storage that is destroyed")
			}
			if got := s.caches(); got != 0 {
				t.Errorf("got %d caches after the end", got)
			}
			if err := s.GetList(t.Context(), podPrefix, everyPod(), newPodList()); err == nil {
				t.Error("a storage that is destroyed answers a list")
			}
		})
	}
}

// TestUnusedStorageLeavesNothingBehind destroys a storage whose cache was never started, and
// one whose cache was.
func TestUnusedStorageLeavesNothingBehind(t *testing.T) {
	for name, used := range map[string]bool{"never used": false, "used": true} {
		t.Run(name, func(t *testing.T) {
			endpoints, running := warmEtcd(t)
			source := &changingIndexes{}
			s, destroy, err := decorate(Config{WatchCache: true, Lazy: true, Indexes: source}, backend(t, endpoints))
			if err != nil {
				t.Fatal(err)
			}
			defer destroy()
			declared := Indexes{Labels: []string{"app"}}
			source.change(declared)
			if used {
				if err := s.GetList(t.Context(), podPrefix, everyPod(), newPodList()); err != nil {
					t.Fatal(err)
				}
				if !inService(s, declared) {
					t.Error("the first cache has not the indexes that were declared last")
				}
			}
			destroy()
			err = s.GetList(t.Context(), podPrefix, everyPod(), newPodList())
			if after, ok := apierrors.SuggestsClientDelay(err); !used && (!apierrors.IsServiceUnavailable(err) || !ok || after != 1) {
				t.Errorf("list of a storage that is destroyed ended with %v, want 503 that asks to wait for a second", err)
			}
			if err == nil {
				t.Error("a storage that is destroyed answers a list")
			}
			awaitWakeUps(t)
			goleak.VerifyNone(t, running)
		})
	}
}

// TestReplacedBeforeItWasFilled exchanges a first cache that cannot be filled. Nothing waits for it any more.
func TestReplacedBeforeItWasFilled(t *testing.T) {
	source := &changingIndexes{}
	s := newStack(t, cached, stackOptions{lazy: true, source: source})
	createPod(t.Context(), t, s, "web")
	r := rotationOf(s.Interface)
	fresh := r.fresh
	r.fresh = func(ctx context.Context, g *generation) error {
		s.transformer.setFailing(false)
		return fresh(ctx, g)
	}
	s.transformer.setFailing(true)
	if err := s.GetList(t.Context(), podPrefix, everyPod(), newPodList()); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v, want 429", err)
	}
	declared := Indexes{Labels: []string{"app"}}
	source.change(declared)
	eventually(t, "next cache to be in service", func() bool { return inService(s.Interface, declared) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.builds.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(restPeriod):
		t.Error("a goroutine waits for the cache that was replaced")
	}
}

// TestObjectThatCannotBeRead has one before the first cache. Lists of the latest state hear which it is, as
// they do from etcd where a cache was filled before.
func TestObjectThatCannotBeRead(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AllowUnsafeMalformedObjectDeletion, true)
	s := newStack(t, cached, stackOptions{lazy: true, unsafeDeletion: true})
	createPod(t.Context(), t, s, "web")
	mend := s.transformer.replace(corruptTransformer{s.transformer.current(), corruptError(t)})
	list := func(opts storage.ListOptions) error { return s.GetList(t.Context(), podPrefix, opts, newPodList()) }
	anyState := everyPod()
	anyState.ResourceVersion = "0"
	for range 2 {
		if err := list(everyPod()); !apierrors.IsStoreReadError(err) || !strings.Contains(err.Error(), "web") {
			t.Errorf("list of the latest state: got %v, want the object that cannot be read", err)
		}
		if err := list(anyState); !apierrors.IsTooManyRequests(err) {
			t.Errorf("list of any state: got %v, want 429", err)
		}
	}
	mend()
	eventually(t, "list to be answered", func() bool { return list(everyPod()) == nil && list(anyState) == nil })
	if rotationOf(s.Interface).isUnreadable(rotationOf(s.Interface).current, everyPod()) {
		t.Error("lists go to etcd although the cache is filled")
	}
}

// corruptTransformer finds every object damaged.
type corruptTransformer struct {
	value.Transformer
	err error
}

func (t corruptTransformer) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	return nil, false, t.err
}

// TestFirstListIsExplained explains lists of a version without a cache, and sends them.
func TestFirstListIsExplained(t *testing.T) {
	limited := everyPod()
	limited.Predicate.Limit = 500
	limitedAny := limited
	limitedAny.ResourceVersion = "0"
	anyState := everyPod()
	anyState.ResourceVersion = "0"
	type decision struct {
		Source       Source
		Rule         Rule
		LimitIgnored bool
	}
	for name, tc := range map[string]struct {
		opts storage.ListOptions
		want decision
	}{
		"latest state":           {opts: everyPod(), want: decision{Source: SourceCache, Rule: RuleNotStarted}},
		"any state":              {opts: anyState, want: decision{Source: SourceCache, Rule: RuleNotStarted}},
		"page of any state":      {opts: limitedAny, want: decision{Source: SourceEtcd, Rule: RuleNotReady}},
		"page of the latest one": {opts: limited, want: decision{Source: SourceEtcd, Rule: RuleNotReady}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t, cached, stackOptions{lazy: true})
			createPod(t.Context(), t, s, "web")
			filled, fill := make(chan struct{}), rotationOf(s.Interface).fill
			rotationOf(s.Interface).fill = func() error {
				<-filled
				return fill()
			}
			release := sync.OnceFunc(func() { close(filled) })
			defer release()
			ctx, explained := WithExplanation(t.Context())
			if err := s.GetList(ctx, podPrefix, tc.opts, newPodList()); err != nil {
				t.Fatal(err)
			}
			got, _ := explained.Reading()
			if diff := cmp.Diff(tc.want, decision{got.Source, got.Rule, got.LimitIgnored}); diff != "" {
				t.Errorf("explained (-want +got):\n%s", diff)
			}
			if tc.want.Source == SourceCache {
				release()
			}
			ctx, sent := WithRecorder(t.Context())
			if err := s.GetList(ctx, podPrefix, tc.opts, newPodList()); err != nil {
				t.Fatal(err)
			}
			if reading, _ := sent.Reading(); reading.Source != got.Source || reading.LimitIgnored != got.LimitIgnored {
				t.Errorf("the list was answered as %+v, and explained as %+v", reading, got)
			}
		})
	}
}
