// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// checkWatch records a watch and has it explained.
func checkWatch(t *testing.T, w *podWorld, opts storage.ListOptions, want Reading) {
	t.Helper()
	opts = w.options(opts)
	ignoreSize := cmpopts.IgnoreFields(Reading{}, "ObjectBytes")
	ctx, recorder := WithRecorder(t.Context())
	watched, err := w.Watch(ctx, podPrefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	watched.Stop()
	got, _ := recorder.Reading()
	if diff := cmp.Diff(want, got, ignoreSize); diff != "" {
		t.Errorf("unexpected reading (-want +got):\n%s", diff)
	}
	ctx, recorder = WithExplanation(t.Context())
	if watched, err = w.Watch(ctx, podPrefix, opts); err != nil {
		t.Fatal(err)
	}
	if event, ok := <-watched.ResultChan(); ok {
		t.Errorf("got event %v from the explanation, want the end", event)
	}
	got, _ = recorder.Reading()
	if diff := cmp.Diff(want, got, ignoreSize); diff != "" {
		t.Errorf("unexpected explanation (-want +got):\n%s", diff)
	}
}

func TestReadingOfWatches(t *testing.T) {
	dispatched := func(index string) Reading {
		return Reading{Source: SourceCache, Rule: RuleWatch, Index: index, Total: 10}
	}
	byLabel := newPodWorld(t, cached, stackOptions{declared: Indexes{Fields: []string{"spec.nodeName"}, Labels: []string{"app"}, Trigger: Trigger{Label: "app"}}})
	for name, tc := range map[string]struct {
		opts storage.ListOptions
		want Reading
	}{
		"everything":                  {everything(), dispatched("")},
		"the trigger":                 {label(t, "app=db"), dispatched("l:app")},
		"the trigger, a set":          {label(t, "app in (db,web)"), dispatched("")},
		"an index that is no trigger": {field("spec.nodeName=n3"), dispatched("")},
	} {
		t.Run(name, func(t *testing.T) { checkWatch(t, byLabel, at(tc.opts, "current", "", 0), tc.want) })
	}
	byField := newPodWorld(t, cached, stackOptions{declared: Indexes{Fields: []string{"spec.nodeName"}, Trigger: Trigger{Field: "spec.nodeName"}}})
	t.Run("a field is the trigger", func(t *testing.T) {
		checkWatch(t, byField, at(field("spec.nodeName=n3"), "current", "", 0), dispatched("f:spec.nodeName"))
	})
}

// TestReadingOfGets records them; there is nothing to be explained.
func TestReadingOfGets(t *testing.T) {
	w := newPodWorld(t, cached, stackOptions{declared: Indexes{Labels: []string{"app"}}})
	uncachedWorld := newPodWorld(t, uncached, stackOptions{})
	none := fromEtcd(RuleNoCache, 1, 1)
	none.Total = -1
	for name, tc := range map[string]struct {
		world        *podWorld
		key, version string
		want         Reading
	}{
		"latest":        {w, "a/p0", "", fromEtcd(RuleGetLatest, 1, 1)},
		"latest, none":  {w, "a/p9", "", fromEtcd(RuleGetLatest, 0, 0)},
		"any":           {w, "a/p0", "0", fromCache(RuleAny, "", 1, 1)},
		"not older":     {w, "a/p0", w.current, fromCache(RuleNotOlderThan, "", 1, 1)},
		"without cache": {uncachedWorld, "a/p0", "", none},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mark := range []func(context.Context) (context.Context, *Recorder){WithRecorder, WithExplanation} {
				ctx, recorder := mark(t.Context())
				pod := &example.Pod{}
				if err := tc.world.Get(ctx, podPrefix+tc.key, storage.GetOptions{ResourceVersion: tc.version}, pod); err != nil && !storage.IsNotFound(err) {
					t.Fatal(err)
				}
				got, _ := recorder.Reading()
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("unexpected reading (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestReadingWithoutCache records and explains what etcd answers by itself.
func TestReadingWithoutCache(t *testing.T) {
	w := newPodWorld(t, uncached, stackOptions{})
	for name, tc := range map[string]struct {
		key                       string
		opts                      storage.ListOptions
		wantScanned, wantReturned int64
		explained                 Reading
	}{
		"everything": {"", everything(), 10, 10, fromEtcd(RuleNoCache, 10, 10)},
		"a page":     {"", at(everything(), "", "", 4), 4, 4, fromEtcd(RuleNoCache, 4, 4)},
		"by field":   {"", field("spec.nodeName=n1"), 10, 3, fromEtcd(RuleNoCache, 10, -1)},
		"namespace":  {"a/", everything(), 6, 6, fromEtcd(RuleNoCache, -1, -1)},
	} {
		t.Run(name, func(t *testing.T) {
			opts := w.options(tc.opts)
			ctx, recorder := WithRecorder(t.Context())
			if err := w.GetList(ctx, podPrefix+tc.key, opts, &example.PodList{}); err != nil {
				t.Fatal(err)
			}
			got, _ := recorder.Reading()
			want := Reading{Source: SourceEtcd, Rule: RuleNoCache, Total: -1, Scanned: tc.wantScanned, Returned: tc.wantReturned}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unexpected reading (-want +got):\n%s", diff)
			}
			ctx, recorder = WithExplanation(t.Context())
			if err := w.GetList(ctx, podPrefix+tc.key, opts, &example.PodList{}); err != nil {
				t.Fatal(err)
			}
			got, _ = recorder.Reading()
			if diff := cmp.Diff(tc.explained, got, cmpopts.IgnoreFields(Reading{}, "ObjectBytes")); diff != "" {
				t.Errorf("unexpected explanation (-want +got):\n%s", diff)
			}
		})
	}
	checkWatch(t, w, at(everything(), "current", "", 0), Reading{Source: SourceEtcd, Rule: RuleNoCache, Total: -1})
}

// TestRefusedReads has the same errors with and without explanation, and no source.
func TestRefusedReads(t *testing.T) {
	for _, m := range []mode{cached, uncached} {
		w := newPodWorld(t, m, stackOptions{declared: Indexes{Labels: []string{"app"}}})
		token := func(token, version string) storage.ListOptions {
			opts := at(everything(), version, "", 4)
			opts.Predicate.Continue = token
			return opts
		}
		good, err := storage.EncodeContinue(podPrefix+"a/p3\x00", podPrefix, 1)
		if err != nil {
			t.Fatal(err)
		}
		for name, opts := range map[string]storage.ListOptions{
			"a token that is none":          token("nonsense", ""),
			"a token and a revision":        token(good, w.current),
			"a revision that is none":       at(everything(), "nonsense", "", 0),
			"an exact one that is none":     at(label(t, "app=db"), "nonsense", exact, 0),
			"a match that does not exist":   at(everything(), w.current, "Roughly", 0),
			"a limit and a wrong revision":  at(everything(), "-1", "", 3),
			"a wrong revision and no older": at(everything(), "-1", notOlderThan, 3),
		} {
			t.Run(string(m)+", "+name, func(t *testing.T) {
				opts := w.options(opts)
				want := w.GetList(t.Context(), podPrefix, opts, &example.PodList{})
				if want == nil {
					t.Fatal("the list is not refused")
				}
				for _, mark := range []func(context.Context) (context.Context, *Recorder){WithRecorder, WithExplanation} {
					ctx, recorder := mark(t.Context())
					if err := w.GetList(ctx, podPrefix, opts, &example.PodList{}); fmt.Sprint(err) != fmt.Sprint(want) {
						t.Errorf("got error %v, want %v", err, want)
					}
					if got, recorded := recorder.Reading(); m == cached && (!recorded || got.Source != "") {
						t.Errorf("got reading %+v, want one without source", got)
					}
				}
			})
		}
	}
}

// TestReadingOfUnfilledCache reads from a cache that cannot be filled, because etcd holds
// an object behind all others that cannot be decoded.
func TestReadingOfUnfilledCache(t *testing.T) {
	w := newPodWorld(t, cached, stackOptions{declared: Indexes{Labels: []string{"app"}}})
	if _, err := w.client.KV.Put(t.Context(), w.prefix+podPrefix+"z/z", "broken"); err != nil {
		t.Fatal(err)
	}
	w.raw.expireWatches()
	eventually(t, "the cache to be without service", func() bool { return w.ReadinessCheck() != nil })
	for name, tc := range map[string]struct {
		opts    storage.ListOptions
		want    Reading
		refused bool
	}{
		"a page":          {at(everything(), "", "", 2), fromEtcd(RuleNotReady, 2, 2), false},
		"a page of any":   {at(everything(), "0", "", 2), fromEtcd(RuleNotReady, 2, 2), false},
		"everything":      {everything(), Reading{Rule: RuleLatest, Total: 10}, true},
		"a page by label": {at(label(t, "app=db"), "0", "", 2), Reading{Rule: RuleAny, Total: 10}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mark := range []func(context.Context) (context.Context, *Recorder){WithRecorder, WithExplanation} {
				ctx, recorder := mark(t.Context())
				err := w.GetList(ctx, podPrefix, w.options(tc.opts), &example.PodList{})
				if apierrors.IsTooManyRequests(err) != tc.refused || (err != nil) != tc.refused {
					t.Errorf("got error %v, want one of too many requests: %v", err, tc.refused)
				}
				got, _ := recorder.Reading()
				if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Reading{}, "ObjectBytes")); diff != "" {
					t.Errorf("unexpected reading (-want +got):\n%s", diff)
				}
			}
		})
	}
	for _, mark := range []func(context.Context) (context.Context, *Recorder){WithRecorder, WithExplanation} {
		ctx, recorder := mark(t.Context())
		_, err := w.Watch(ctx, podPrefix, w.options(at(everything(), "current", "", 0)))
		if got, _ := recorder.Reading(); !apierrors.IsTooManyRequests(err) || got.Source != "" || got.Rule != RuleWatch {
			t.Errorf("got error %v and reading %+v of a watch, want one of too many requests and no source", err, got)
		}
	}
	ctx, recorder := WithRecorder(t.Context())
	if err := w.Get(ctx, podPrefix+"a/p0", storage.GetOptions{ResourceVersion: "0"}, &example.Pod{}); err != nil {
		t.Fatal(err)
	}
	if got, _ := recorder.Reading(); got.Rule != RuleNotReady || got.Source != SourceEtcd {
		t.Errorf("got %+v of a GET, want the rule %s", got, RuleNotReady)
	}
}

// TestRuleOfReadsFromEtcd holds the rules for an etcd that does not tell the cache how far it is.
func TestRuleOfReadsFromEtcd(t *testing.T) {
	for name, tc := range map[string]struct {
		opts storage.ListOptions
		want Rule
	}{
		"latest":    {everything(), RuleLatestFromEtcd},
		"page":      {at(everything(), "", "", 3), RuleLatestFromEtcd},
		"any":       {at(everything(), "0", "", 3), RuleNotReady},
		"not older": {at(everything(), "5", "", 0), RuleNotReady},
		"exact":     {at(everything(), "5", exact, 0), RuleExactFromEtcd},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ruleOf(tc.opts, SourceEtcd); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestExplanationReadsNothing asks etcd for no object, and has a resource version.
func TestExplanationReadsNothing(t *testing.T) {
	w := newPodWorld(t, cached, stackOptions{declared: Indexes{Labels: []string{"app"}}})
	before := w.metrics.Counts(podResource())
	for _, opts := range []storage.ListOptions{everything(), at(everything(), "old", exact, 0), at(everything(), "0", "", 3), label(t, "app=db")} {
		ctx, _ := WithExplanation(t.Context())
		list := &example.PodList{}
		if err := w.GetList(ctx, podPrefix, w.options(opts), list); err != nil {
			t.Fatal(err)
		}
		if version, err := strconv.Atoi(list.ResourceVersion); err != nil || version == 0 {
			t.Errorf("got resource version %q, want one of the cache", list.ResourceVersion)
		}
	}
	if got := w.metrics.Counts(podResource()).Sub(before)[Request{CallerClient, OperationList}]; got != 0 {
		t.Errorf("etcd was listed %d times, want not at all", got)
	}
}

// TestTooNewRevision is waited for when it is read and not when it is explained.
func TestTooNewRevision(t *testing.T) {
	w := newPodWorld(t, cached, stackOptions{declared: Indexes{Labels: []string{"app"}}})
	opts := w.options(at(everything(), "999999999", notOlderThan, 0))
	ctx, recorder := WithRecorder(t.Context())
	if err := w.GetList(ctx, podPrefix, opts, &example.PodList{}); !storage.IsTooLargeResourceVersion(err) {
		t.Errorf("got error %v, want one of a revision that is too large", err)
	}
	want := fromCache(RuleNotOlderThan, "", 0, 0)
	got, _ := recorder.Reading()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected reading (-want +got):\n%s", diff)
	}
	ctx, recorder = WithExplanation(t.Context())
	if err := w.GetList(ctx, podPrefix, opts, &example.PodList{}); err != nil {
		t.Error(err)
	}
	if got, _ := recorder.Reading(); got.Source != SourceCache || got.Rule != RuleNotOlderThan {
		t.Errorf("got explanation %+v, want the cache by %s", got, RuleNotOlderThan)
	}
}

// TestCountedSelector is as good for an index as the selector that it counts.
func TestCountedSelector(t *testing.T) {
	predicate := label(t, "app=web,tier!=x").Predicate
	inner := predicate.Label
	counted := countComparisons(&predicate)
	if value, ok := predicate.Label.RequiresExactMatch("app"); !ok || value != "web" {
		t.Errorf("got value %q of app, %v, want web", value, ok)
	}
	if predicate.Label.String() != inner.String() || predicate.Label.Empty() {
		t.Errorf("got selector %q, want %q", predicate.Label, inner)
	}
	requirements, selectable := predicate.Label.Requirements()
	if want, _ := inner.Requirements(); !selectable || cmp.Diff(want.String(), requirements.String()) != "" {
		t.Errorf("got requirements %s, want %s", requirements, want)
	}
	more := predicate.Label.DeepCopySelector().Add(requirements[0])
	for _, selector := range []labels.Selector{predicate.Label, more} {
		if !selector.Matches(labels.Set{"app": "web"}) || selector.Matches(labels.Set{"app": "db"}) {
			t.Errorf("%q does not select what it says", selector)
		}
	}
	if got := counted.orReturned(0); got != 4 {
		t.Errorf("got %d comparisons, want 4", got)
	}
	all := storage.Everything
	if countComparisons(&all) != nil {
		t.Error("a predicate that selects everything is counted")
	}
}
