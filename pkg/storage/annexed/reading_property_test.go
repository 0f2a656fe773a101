// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kubeannex/annex/test/env/testetcd"
)

// TestRecordingChangesNoAnswer sends random lists three times, over random objects, with
// indexes and without: as they are, recorded and to be explained.
func TestRecordingChangesNoAnswer(t *testing.T) {
	client := testetcd.Run(t, nil)
	for name, tc := range map[string]struct {
		indexes Indexes
		lists   int
	}{
		"indexed":   {gadgetIndexes(Trigger{}), 1500},
		"unindexed": {Indexes{}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			d := &dice{data: randomBytes(7, 100_000)}
			w := newTwins(t, client, tc.indexes)
			seen := map[Rule]int{}
			for i := range tc.lists {
				if i%50 == 0 {
					for range 5 {
						w.write(t.Context(), t, d, w.plain, 0)
					}
				}
				for _, rule := range w.compareRecorded(t.Context(), t, d) {
					seen[rule]++
				}
			}
			for _, rule := range []Rule{RuleLatest, RuleAny, RuleNotOlderThan, RuleExact, RuleContinue} {
				if want := tc.lists / 30; seen[rule] < want {
					t.Errorf("only %d lists were answered by the rule %s, want at least %d", seen[rule], rule, want)
				}
			}
		})
	}
}

// compareRecorded sends one list, page by page, and returns the rules of the pages.
func (w *twins) compareRecorded(ctx context.Context, t *testing.T, d *dice) (rules []Rule) {
	t.Helper()
	current, err := w.plain.GetCurrentResourceVersion(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w.settle(ctx, t, current)
	opts := storage.ListOptions{Recursive: true, Predicate: d.predicate(t)}
	opts.Predicate.Limit = int64(oneOf(d, 0, 1, 2, 3, 500))
	opts.ResourceVersion = oneOf(d, "", "0", strconv.FormatUint(current, 10), "nonsense")
	if opts.ResourceVersion != "" {
		opts.ResourceVersionMatch = oneOf(d, "", metav1.ResourceVersionMatchNotOlderThan, metav1.ResourceVersionMatchExact)
	}
	key := w.prefix + oneOf(d, "", "a/", "b/", "none/")
	for range 100 {
		want, reading := w.answerRecorded(ctx, t, key, opts)
		rules = append(rules, reading.Rule)
		if want.Continue == "" {
			return rules
		}
		opts.Predicate.Continue, opts.ResourceVersion, opts.ResourceVersionMatch = want.Continue, "", ""
	}
	t.Fatal("a list of few objects has more than 100 pages")
	return nil
}

func (w *twins) answerRecorded(ctx context.Context, t *testing.T, key string, opts storage.ListOptions) (answer, Reading) {
	t.Helper()
	want := listOf(ctx, w.indexed, key, opts)
	recorded, recorder := WithRecorder(ctx)
	got := listOf(recorded, w.indexed, key, opts)
	describe := func() string {
		return key + " with labels " + opts.Predicate.Label.String() + ", fields " + opts.Predicate.Field.String() +
			", resourceVersion " + opts.ResourceVersion + " " + string(opts.ResourceVersionMatch)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-without recorder +with):\n%s", describe(), diff)
	}
	read, _ := recorder.Reading()
	if int(read.Returned) != len(want.Items) || read.Scanned < read.Returned {
		t.Fatalf("%s: got %+v of an answer of %d objects", describe(), read, len(want.Items))
	}
	explained, recorder := WithExplanation(ctx)
	got = listOf(explained, w.indexed, key, opts)
	reading, _ := recorder.Reading()
	if got.Error != want.Error || len(got.Items) != 0 {
		t.Fatalf("%s: got %+v from the explanation, want no item and error %q", describe(), got, want.Error)
	}
	decided := func(r Reading) Reading {
		return Reading{Source: r.Source, Rule: r.Rule, Index: r.Index, LimitIgnored: r.LimitIgnored, Total: r.Total}
	}
	if diff := cmp.Diff(decided(read), decided(reading)); diff != "" {
		t.Fatalf("%s (-real +explained):\n%s", describe(), diff)
	}
	if want.Error == "" && opts.Predicate.Limit == 0 && opts.Predicate.Continue == "" {
		if reading.Scanned != read.Scanned || reading.Returned != read.Returned {
			t.Fatalf("%s: got the estimate %+v of the reading %+v", describe(), reading, read)
		}
	}
	return want, read
}

// BenchmarkRecordedList lists 25 of 20,000 objects without an index, and with one.
func BenchmarkRecordedList(b *testing.B) {
	for name, indexes := range map[string]Indexes{"unindexed": {}, "indexed": {Fields: []string{colorField}}} {
		s := openStill(b, 20_000, indexes)
		predicate := storage.SelectionPredicate{Field: fields.OneTermEqualSelector(colorField, "node-7"), Label: labels.Everything(), GetAttrs: gadgetAttributes()}
		for recording, mark := range map[string]func(context.Context) (context.Context, *Recorder){
			"plain":    func(ctx context.Context) (context.Context, *Recorder) { return ctx, nil },
			"recorded": WithRecorder,
		} {
			b.Run(name+"/"+recording, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					ctx, _ := mark(b.Context())
					list := &unstructured.UnstructuredList{}
					if err := s.GetList(ctx, "/gadgets/", storage.ListOptions{ResourceVersion: "1", ResourceVersionMatch: "NotOlderThan", Predicate: predicate, Recursive: true}, list); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
