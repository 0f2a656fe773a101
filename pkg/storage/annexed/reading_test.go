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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// podWorld is a stack with ten pods that nobody changes, and revisions of it.
type podWorld struct {
	*stack
	// old is a revision that etcd has and the cache has no snapshot of; current is the newest.
	old, current string
}

// newPodWorld creates pods that are told apart by node, app label and restart policy:
//
//	a/p0 n1 web Always   a/p3 n2 db  Never    b/q0 n1 web Always   b/q3 n3 -   Never
//	a/p1 n1 db  Never    a/p4 n2 web Always   b/q1 n2 db  Never
//	a/p2 n2 web Always   a/p5 n2 -   Never    b/q2 n3 web Always
func newPodWorld(t *testing.T, m mode, opts stackOptions) *podWorld {
	t.Helper()
	w := &podWorld{stack: newStack(t, m, opts)}
	for _, pod := range []struct{ key, node, app string }{
		{"a/p0", "n1", "web"}, {"a/p1", "n1", "db"}, {"a/p2", "n2", "web"}, {"a/p3", "n2", "db"}, {"a/p4", "n2", "web"}, {"a/p5", "n2", ""},
		{"b/q0", "n1", "web"}, {"b/q1", "n2", "db"}, {"b/q2", "n3", "web"}, {"b/q3", "n3", ""},
	} {
		object, created := &example.Pod{}, &example.Pod{}
		object.Namespace, object.Name, object.Spec.NodeName = pod.key[:1], pod.key[2:], pod.node
		object.Spec.RestartPolicy = "Always"
		if number, _ := strconv.Atoi(pod.key[3:]); number%2 == 1 {
			object.Spec.RestartPolicy = "Never"
		}
		if pod.app != "" {
			object.Labels = map[string]string{"app": pod.app}
		}
		if err := w.Create(t.Context(), podPrefix+pod.key, object, created, 0); err != nil {
			t.Fatal(err)
		}
		w.old = created.ResourceVersion
	}
	w.increaseRevision(t.Context(), t)
	w.relist(t)
	w.current = strconv.FormatInt(w.increaseRevision(t.Context(), t), 10)
	if m == cached {
		// The cache has got there, so nothing that follows depends on time.
		w.list(t.Context(), t, w.options(storage.ListOptions{ResourceVersion: w.current, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}))
	}
	return w
}

func (w *podWorld) list(ctx context.Context, t *testing.T, opts storage.ListOptions) {
	t.Helper()
	if err := w.GetList(ctx, podPrefix, opts, &example.PodList{}); err != nil {
		t.Fatal(err)
	}
}

// options completes those of a test: revisions are written "old" and "current" there, and a
// selector that is missing selects everything.
func (w *podWorld) options(opts storage.ListOptions) storage.ListOptions {
	switch opts.ResourceVersion {
	case "old":
		opts.ResourceVersion = w.old
	case "current":
		opts.ResourceVersion = w.current
	}
	if opts.Predicate.Field == nil {
		opts.Predicate.Field = fields.Everything()
	}
	if opts.Predicate.Label == nil {
		opts.Predicate.Label = labels.Everything()
	}
	opts.Predicate.GetAttrs = podAttributes
	opts.Recursive = !opts.Recursive // the zero value is what nearly all lists are
	return opts
}

// readingCase is one read. In its options a revision may be "old" or "current", and
// Recursive stands for a list of one key.
type readingCase struct {
	key  string // behind podPrefix
	opts storage.ListOptions
	// continueAfter asks for the page behind a key, at the revision of opts, which is taken out.
	continueAfter string
	want          Reading
	// explained is what differs when the read is only explained: -2 stands for no difference.
	wantScanned, wantReturned int64
}

const same = -2

func field(selector string) storage.ListOptions {
	return storage.ListOptions{Predicate: storage.SelectionPredicate{Field: fields.ParseSelectorOrDie(selector)}}
}

func label(t *testing.T, selector string) storage.ListOptions {
	t.Helper()
	parsed, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return storage.ListOptions{Predicate: storage.SelectionPredicate{Label: parsed}}
}

func everything() storage.ListOptions { return storage.ListOptions{} }

// at sets the revision, the way it is to be matched and the limit.
func at(opts storage.ListOptions, version string, match metav1.ResourceVersionMatch, limit int64) storage.ListOptions {
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.Predicate.Limit = version, match, limit
	return opts
}

// check sends the read three times: as it is, recorded, and to be explained.
func (c readingCase) check(t *testing.T, w *podWorld) {
	t.Helper()
	opts := w.options(c.opts)
	if c.continueAfter != "" {
		revision, err := strconv.ParseInt(opts.ResourceVersion, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if opts.Predicate.Continue, err = storage.EncodeContinue(podPrefix+c.continueAfter+"\x00", podPrefix, revision); err != nil {
			t.Fatal(err)
		}
		opts.ResourceVersion = ""
	}
	plain, recorded, explained := &example.PodList{}, &example.PodList{}, &example.PodList{}
	plainErr := w.GetList(t.Context(), podPrefix+c.key, opts, plain)
	ctx, recorder := WithRecorder(t.Context())
	err := w.GetList(ctx, podPrefix+c.key, opts, recorded)
	if diff := cmp.Diff(plain, recorded); diff != "" {
		t.Errorf("the answer differs when it is recorded (-without +with):\n%s", diff)
	}
	if fmt.Sprint(plainErr) != fmt.Sprint(err) {
		t.Errorf("got error %v when it is recorded, want %v", err, plainErr)
	}
	ignoreSize := cmpopts.IgnoreFields(Reading{}, "ObjectBytes")
	got, _ := recorder.Reading()
	if diff := cmp.Diff(c.want, got, ignoreSize); diff != "" {
		t.Errorf("unexpected reading (-want +got):\n%s", diff)
	}

	ctx, recorder = WithExplanation(t.Context())
	if explainErr := w.GetList(ctx, podPrefix+c.key, opts, explained); fmt.Sprint(explainErr) != fmt.Sprint(plainErr) {
		t.Errorf("got error %v from the explanation, want %v", explainErr, plainErr)
	}
	if plainErr == nil && (explained.Items == nil || len(explained.Items) != 0) {
		t.Errorf("got items %v from the explanation, want an empty list that is not nil", explained.Items)
	}
	want := c.want
	if c.wantScanned != same {
		want.Scanned = c.wantScanned
	}
	if c.wantReturned != same {
		want.Returned = c.wantReturned
	}
	got, _ = recorder.Reading()
	if diff := cmp.Diff(want, got, ignoreSize); diff != "" {
		t.Errorf("unexpected explanation (-want +got):\n%s", diff)
	}
}

// fromCache and fromEtcd are readings of ten pods.
func fromCache(rule Rule, index string, scanned, returned int64) Reading {
	return Reading{Source: SourceCache, Rule: rule, Index: index, Total: 10, Scanned: scanned, Returned: returned}
}

func fromEtcd(rule Rule, scanned, returned int64) Reading {
	return Reading{Source: SourceEtcd, Rule: rule, Total: 10, Scanned: scanned, Returned: returned}
}

func whole(reading Reading) Reading {
	reading.LimitIgnored = true
	return reading
}

const (
	exact        = metav1.ResourceVersionMatchExact
	notOlderThan = metav1.ResourceVersionMatchNotOlderThan
)

// TestReadingOfLists records and explains a list for every rule.
func TestReadingOfLists(t *testing.T) {
	w := newPodWorld(t, cached, stackOptions{declared: Indexes{Fields: []string{"spec.nodeName"}, Labels: []string{"app"}}})
	both := field("spec.nodeName=n1")
	both.Predicate.Label = label(t, "app=web").Predicate.Label
	one, missing := field("metadata.name=p0"), field("metadata.name=p9")
	one.Recursive, missing.Recursive = true, true
	nothing := everything()
	nothing.Predicate.Label = labels.Nothing()
	for name, tc := range map[string]readingCase{
		"latest":                        {"", everything(), "", fromCache(RuleLatest, "", 10, 10), same, same},
		"latest of a namespace":         {"a/", everything(), "", fromCache(RuleLatest, "", 6, 6), same, same},
		"latest by field":               {"", field("spec.nodeName=n1"), "", fromCache(RuleLatest, "f:spec.nodeName", 3, 3), same, same},
		"latest by label":               {"", label(t, "app=web"), "", fromCache(RuleLatest, "l:app", 5, 5), same, same},
		"latest by both, one index":     {"", both, "", fromCache(RuleLatest, "f:spec.nodeName", 3, 2), same, same},
		"latest by field in a ns":       {"a/", field("spec.nodeName=n1"), "", fromCache(RuleLatest, "f:spec.nodeName", 2, 2), same, same},
		"by a value that none has":      {"", field("spec.nodeName=n9"), "", fromCache(RuleLatest, "f:spec.nodeName", 0, 0), same, same},
		"by a field without index":      {"", field("spec.restartPolicy=Always"), "", fromCache(RuleLatest, "", 10, 5), same, same},
		"with and without index":        {"", field("spec.nodeName=n1,spec.restartPolicy=Never"), "", fromCache(RuleLatest, "f:spec.nodeName", 3, 1), same, same},
		"by a label without index":      {"", label(t, "tier=x"), "", fromCache(RuleLatest, "", 10, 0), same, same},
		"any value of a label":          {"", label(t, "app"), "", fromCache(RuleLatest, "", 10, 8), same, same},
		"all values but one":            {"", field("spec.nodeName!=n1"), "", fromCache(RuleLatest, "", 10, 7), same, same},
		"selects nothing":               {"", nothing, "", fromCache(RuleLatest, "", 10, 0), same, same},
		"limit":                         {"", at(everything(), "", "", 4), "", fromCache(RuleLatest, "", 4, 4), same, same},
		"limit above all":               {"", at(everything(), "", "", 40), "", fromCache(RuleLatest, "", 10, 10), same, same},
		"limit, brim of an index":       {"", at(field("spec.nodeName=n1"), "", "", 3), "", fromCache(RuleLatest, "f:spec.nodeName", 3, 3), same, same},
		"limit below an index":          {"", at(field("spec.nodeName=n2"), "", "", 1), "", fromCache(RuleLatest, "f:spec.nodeName", 1, 1), same, same},
		"limit without index":           {"", at(field("spec.restartPolicy=Always"), "", "", 2), "", fromCache(RuleLatest, "", 3, 2), 4, same},
		"any":                           {"", at(everything(), "0", "", 0), "", fromCache(RuleAny, "", 10, 10), same, same},
		"any, limit ignored":            {"", at(everything(), "0", "", 4), "", whole(fromCache(RuleAny, "", 10, 10)), same, same},
		"any, limit ignored, by field":  {"", at(field("spec.nodeName=n1"), "0", "", 1), "", whole(fromCache(RuleAny, "f:spec.nodeName", 3, 3)), same, same},
		"any, not older":                {"", at(label(t, "app=db"), "0", notOlderThan, 1), "", whole(fromCache(RuleAny, "l:app", 3, 3)), same, same},
		"not older, by default":         {"", at(label(t, "app=db"), "current", "", 0), "", fromCache(RuleNotOlderThan, "l:app", 3, 3), same, same},
		"not older than old":            {"", at(everything(), "old", notOlderThan, 4), "", fromCache(RuleNotOlderThan, "", 4, 4), same, same},
		"exact":                         {"", at(everything(), "current", exact, 0), "", fromCache(RuleExact, "", 10, 10), same, same},
		"exact reads no index":          {"", at(field("spec.nodeName=n1"), "current", exact, 0), "", fromCache(RuleExact, "", 10, 3), same, same},
		"exact by limit":                {"", at(everything(), "current", "", 4), "", fromCache(RuleExact, "", 4, 4), same, same},
		"exact from etcd":               {"", at(everything(), "old", exact, 0), "", fromEtcd(RuleExactFromEtcd, 10, 10), same, same},
		"exact from etcd, limit":        {"", at(everything(), "old", "", 4), "", fromEtcd(RuleExactFromEtcd, 4, 4), same, same},
		"exact from etcd, by field":     {"a/", at(field("spec.nodeName=n1"), "old", exact, 0), "", fromEtcd(RuleExactFromEtcd, 6, 2), same, same},
		"continued":                     {"", at(everything(), "current", "", 4), "a/p3", fromCache(RuleContinue, "", 4, 4), same, same},
		"continued, by field":           {"", at(field("spec.nodeName=n1"), "current", "", 4), "a/p3", fromCache(RuleContinue, "", 6, 1), 10, 3},
		"continued from etcd":           {"", at(everything(), "old", "", 4), "a/p3", fromEtcd(RuleContinueFromEtcd, 4, 4), same, same},
		"one by name":                   {"a/p0", one, "", fromCache(RuleLatest, "", 1, 1), same, same},
		"one by name, any":              {"a/p0", at(one, "0", "", 0), "", fromCache(RuleAny, "", 1, 1), same, same},
		"one by name, exact":            {"a/p0", at(one, "current", exact, 0), "", fromEtcd(RuleExactFromEtcd, 1, 1), same, same},
		"one by name that is not there": {"a/p9", missing, "", fromCache(RuleLatest, "", 0, 0), 1, same},
	} {
		t.Run(name, func(t *testing.T) { tc.check(t, w) })
	}
}

// TestReadingWithoutIndex has the same estimates of a kind without any index.
func TestReadingWithoutIndex(t *testing.T) {
	for name, opts := range map[string]stackOptions{"as they are": {}, "compact": {compact: true}} {
		t.Run(name, func(t *testing.T) { checkWithoutIndex(t, newPodWorld(t, cached, opts)) })
	}
}

func checkWithoutIndex(t *testing.T, w *podWorld) {
	t.Helper()
	ctx, recorder := WithRecorder(t.Context())
	w.list(ctx, t, w.options(field("spec.nodeName=n1")))
	if got, _ := recorder.Reading(); got.Total != 10 || got.Scanned != 10 || got.Returned != 3 {
		t.Errorf("got %+v, want a total of 10, 10 scanned and 3 returned", got)
	}
	stats, err := w.Stats(t.Context())
	if err != nil || stats.EstimatedAverageObjectSizeBytes == 0 {
		t.Fatalf("got statistics %+v and error %v, want the size of an object", stats, err)
	}
	ctx, recorder = WithRecorder(t.Context())
	w.list(ctx, t, w.options(everything()))
	if got, _ := recorder.Reading(); got.ObjectBytes != stats.EstimatedAverageObjectSizeBytes {
		t.Errorf("got objects of %d B, want %d", got.ObjectBytes, stats.EstimatedAverageObjectSizeBytes)
	}
	both := field("spec.nodeName=n2")
	both.Predicate.Label = label(t, "app!=web").Predicate.Label
	for name, tc := range map[string]readingCase{
		"everything":          {"", everything(), "", fromCache(RuleLatest, "", 10, 10), same, same},
		"a namespace":         {"a/", everything(), "", fromCache(RuleLatest, "", 6, 6), same, same},
		"another namespace":   {"c/", everything(), "", fromCache(RuleLatest, "", 0, 0), same, same},
		"a namespace, page":   {"a/", at(everything(), "", "", 4), "", fromCache(RuleLatest, "", 4, 4), same, same},
		"by field":            {"", field("spec.nodeName=n1"), "", fromCache(RuleLatest, "", 10, 3), same, same},
		"by field, namespace": {"a/", field("spec.nodeName=n1"), "", fromCache(RuleLatest, "", 6, 2), same, same},
		"by label":            {"", label(t, "app=web"), "", fromCache(RuleLatest, "", 10, 5), same, same},
		"by label, namespace": {"a/", label(t, "app=web"), "", fromCache(RuleLatest, "", 6, 3), same, same},
		"without the label":   {"", label(t, "!app"), "", fromCache(RuleLatest, "", 10, 2), same, same},
		"by both, namespace":  {"a/", both, "", fromCache(RuleLatest, "", 6, 2), same, same},
		"by name":             {"", field("metadata.name=p0"), "", fromCache(RuleLatest, "", 10, 1), same, same},
	} {
		t.Run(name, func(t *testing.T) { tc.check(t, w) })
	}
}

// TestReadingOfRegistryIndex tells of the indexes that the registry brings along.
func TestReadingOfRegistryIndex(t *testing.T) {
	w := newPodWorld(t, cached, stackOptions{indexed: true})
	hinted := field("spec.nodeName=n1")
	hinted.Predicate.IndexFields = []string{"spec.restartPolicy", "spec.nodeName"}
	if _, err := w.Stats(t.Context()); err != nil {
		t.Fatal(err)
	}
	readingCase{"", hinted, "", fromCache(RuleLatest, "f:spec.nodeName", 3, 3), -1, same}.check(t, w)
	checkWatch(t, w, hinted, Reading{Source: SourceCache, Rule: RuleWatch, Index: "f:spec.nodeName", Total: 10})
}

// TestReadingOfSecondList fills a page through an index where the cache cannot tell what is
// behind it, so that the list is read again without.
func TestReadingOfSecondList(t *testing.T) {
	w := newPodWorld(t, cached, stackOptions{declared: Indexes{Fields: []string{"spec.nodeName"}}})
	g := rotationOf(w.Interface).enter()
	defer g.calls.Done()
	g.cache.MarkConsistent(false) // it keeps no snapshots then
	ctx, recorder := WithRecorder(t.Context())
	w.list(ctx, t, w.options(at(field("spec.nodeName=n1"), "", "", 3)))
	// Three candidates of the index, and seven objects up to the third that matches.
	want := fromCache(RuleLatest, "", 3+7, 3)
	got, _ := recorder.Reading()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected reading (-want +got):\n%s", diff)
	}
}
