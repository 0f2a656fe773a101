// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
)

// fill puts gadgets into the indexes as the Cacher does. The first is the only one
// in its namespace; every second is hot; colors are different; every fourth has a team.
func fill(t *testing.T, indexes Indexes, n int) (*indexSet, []*unstructured.Unstructured) {
	t.Helper()
	set, _ := newIndexSet(indexes, gadgetAttributes(), newGadget())
	var objects []*unstructured.Unstructured
	for i := range n {
		gadget := newGadget().(*unstructured.Unstructured)
		gadget.SetNamespace("many")
		if i == 0 {
			gadget.SetNamespace("one")
		}
		gadget.SetName(fmt.Sprintf("g%d", i))
		gadget.Object["spec"] = map[string]any{"color": fmt.Sprint(i), "hot": i%2 == 0, "size": int64(1)}
		if i%4 == 0 {
			gadget.SetLabels(map[string]string{teamLabel: "a"})
		}
		objects = append(objects, gadget)
	}
	put(t, set, objects...)
	return set, objects
}

// put calls the index functions once for each object.
func put(t *testing.T, set *indexSet, objects ...*unstructured.Unstructured) {
	t.Helper()
	config := cacher.Config{}
	set.apply(&config)
	for _, object := range objects {
		for _, function := range *config.Indexers {
			if _, err := function(object); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSampleIsExactForFewObjects(t *testing.T) {
	set, objects := fill(t, gadgetIndexes(Trigger{}), 1000)
	if got := set.sample.inScope(""); got != 1000 {
		t.Errorf("got %d objects, want 1000", got)
	}
	if got := set.sample.withValue("f:"+hotField, "true"); got != 500 {
		t.Errorf("got %d hot objects, want 500", got)
	}
	// What is taken out of the index is forgotten, what is put in again is not counted twice.
	put(t, set, objects[:200]...)
	copied := objects[500].DeepCopy()
	put(t, set, copied)
	if got := set.sample.inScope(""); got != 800 {
		t.Errorf("got %d objects after 200 were taken out, want 800", got)
	}
	if entries, _ := set.sample.size("l:" + teamLabel); entries != 200 {
		t.Errorf("got %d objects with a team, want 200", entries)
	}
}

func TestSampleEstimatesManyObjects(t *testing.T) {
	const n = 50_000
	set, objects := fill(t, gadgetIndexes(Trigger{}), n)
	if got := len(set.sample.objects); got > sampleSize {
		t.Errorf("the sample has %d objects, want at most %d", got, sampleSize)
	}
	for name, tc := range map[string]struct{ got, want int }{
		"all":             {set.sample.inScope(""), n},
		"in a namespace":  {set.sample.inScope("many"), n},
		"hot":             {set.sample.withValue("f:"+hotField, "true"), n / 2},
		"with a team":     {set.sample.withValue("l:"+teamLabel, "a"), n / 4},
		"of one size":     {set.sample.withValue("f:"+sizeField, "1"), n},
		"other namespace": {set.sample.inScope("none"), 0},
	} {
		if diff := math.Abs(float64(tc.got - tc.want)); diff > 0.3*float64(tc.want) {
			t.Errorf("%s: got %d, want about %d", name, tc.got, tc.want)
		}
	}
	put(t, set, objects...)
	if got := set.sample.inScope(""); got != 0 {
		t.Errorf("got %d objects when all were taken out, want none", got)
	}
}

// TestSampleWithoutIndex keeps the sample where no list reads an index, and no index beside it.
func TestSampleWithoutIndex(t *testing.T) {
	const n = 20_000
	set, objects := fill(t, Indexes{}, n)
	if got := len(set.sample.objects); got > sampleSize || got < sampleSize/4 {
		t.Errorf("the sample has %d objects, want at most %d and not far fewer", got, sampleSize)
	}
	for name, tc := range map[string]struct {
		fields, labels, namespace string
		want                      int
	}{
		"everything":             {want: n},
		"a label":                {labels: teamLabel + "=a", want: n / 4},
		"no label":               {labels: "!" + teamLabel, want: n * 3 / 4},
		"another label":          {labels: "other=a"},
		"a field":                {fields: hotField + "=true", want: n / 2},
		"a field and no label":   {fields: hotField + "=true", labels: "!" + teamLabel, want: n / 4},
		"a label in a namespace": {labels: teamLabel + "=a", namespace: "many", want: n / 4},
		"another namespace":      {labels: teamLabel + "=a", namespace: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			got := set.estimateMatches(selecting(t, tc.fields, tc.labels), tc.namespace)
			if diff := math.Abs(float64(got - tc.want)); diff > 0.3*float64(tc.want) {
				t.Errorf("got %d, want about %d", got, tc.want)
			}
		})
	}
	if got := len(set.sample.values); len(set.names()) != 0 || len(set.served) != 0 || got != 0 {
		t.Errorf("got the indexes %v and %v, and values of %d, want none", set.names(), set.served, got)
	}
	config := cacher.Config{}
	set.apply(&config)
	for name, function := range *config.Indexers {
		if values, err := function(objects[0]); err != nil || len(values) != 0 {
			t.Errorf("got the values %v and error %v of %s, want none", values, err, name)
		}
	}
	put(t, set, objects[1:]...)
	if got := set.sample.inScope(""); got != 0 {
		t.Errorf("got %d objects when all were taken out, want none", got)
	}
}

// TestSampleOfNamelessObjects knows nothing, and says so.
func TestSampleOfNamelessObjects(t *testing.T) {
	set, _ := newIndexSet(Indexes{}, func(kruntime.Object) (labels.Set, fields.Set, error) { return nil, fields.Set{}, nil }, newGadget())
	put(t, set, newGadget().(*unstructured.Unstructured))
	if got := set.estimateMatches(selecting(t, "", "a=b"), ""); set.samples() || got != -1 {
		t.Errorf("got an estimate of %d, want -1", got)
	}
}

func TestListReadsTheFewest(t *testing.T) {
	set, _ := fill(t, gadgetIndexes(Trigger{}), 20_000)
	for name, tc := range map[string]struct {
		fields, labels, namespace string
		wantField, wantLabel      string
	}{
		"one value":                           {fields: colorField + "=7", wantField: colorField},
		"the more selective of two fields":    {fields: hotField + "=true," + colorField + "=7", wantField: colorField},
		"the more selective label":            {fields: hotField + "=true", labels: teamLabel + "=a", wantLabel: teamLabel},
		"a value that all have":               {fields: sizeField + "=1"},
		"a value that most have, everywhere":  {fields: sizeField + "=1", namespace: "many"},
		"a small namespace":                   {labels: teamLabel + "=a", namespace: "one"},
		"a rare value in a large namespace":   {fields: colorField + "=7", namespace: "many", wantField: colorField},
		"a value that nobody has":             {fields: sizeField + "=2", wantField: sizeField},
		"no value":                            {fields: colorField + "!=7", labels: teamLabel},
		"a value of a field without an index": {fields: nameField + "=g1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, used := set.forList(selecting(t, tc.fields, tc.labels), tc.namespace)
			if want := tc.wantField + tc.wantLabel; used != (want != "") {
				t.Errorf("index used: %v, want %q", used, want)
			}
			var want, wantLabels []string
			if tc.wantField != "" {
				want = []string{tc.wantField}
			}
			if tc.wantLabel != "" {
				wantLabels = []string{tc.wantLabel}
			}
			if diff := cmp.Diff([][]string{want, wantLabels}, [][]string{got.IndexFields, got.IndexLabels}); diff != "" {
				t.Errorf("fields and labels (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWatchesOfMostObjectsAreNotTriggered fills a set in which one value is that of
// all objects, one of half of them, and others are rare.
func TestWatchesOfMostObjectsAreNotTriggered(t *testing.T) {
	set, _ := fill(t, gadgetIndexes(Trigger{}), 1000)
	for name, tc := range map[string]struct {
		trigger        Trigger
		fields, labels string
		want           bool
	}{
		"a field that all have":            {trigger: Trigger{Field: sizeField}, fields: sizeField + "=1"},
		"a field that half of them have":   {trigger: Trigger{Field: hotField}, fields: hotField + "=true", want: true},
		"a field that one has":             {trigger: Trigger{Field: colorField}, fields: colorField + "=7", want: true},
		"a field that none has":            {trigger: Trigger{Field: sizeField}, fields: sizeField + "=2", want: true},
		"another field":                    {trigger: Trigger{Field: colorField}, fields: sizeField + "=2"},
		"a label that a quarter has":       {trigger: Trigger{Label: teamLabel}, labels: teamLabel + "=a", want: true},
		"no value of the label":            {trigger: Trigger{Label: teamLabel}, labels: teamLabel},
		"the namespace of all but one":     {trigger: Trigger{Field: namespaceField}, fields: namespaceField + "=many"},
		"a namespace with a single object": {trigger: Trigger{Field: namespaceField}, fields: namespaceField + "=one", want: true},
		"no trigger":                       {fields: colorField + "=7"},
	} {
		t.Run(name, func(t *testing.T) {
			set.trigger = tc.trigger
			got := set.forWatch(selecting(t, tc.fields, tc.labels))
			if triggered := len(got.IndexFields) > 0; triggered != tc.want {
				t.Errorf("the trigger is used: %v, want %v", triggered, tc.want)
			}
		})
	}
}

// selecting returns a predicate of a field selector and a label selector.
func selecting(t *testing.T, fieldSelector, labelSelector string) storage.SelectionPredicate {
	t.Helper()
	field, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		t.Fatal(err)
	}
	label, err := labels.Parse(labelSelector)
	if err != nil {
		t.Fatal(err)
	}
	return storage.SelectionPredicate{Field: field, Label: label}
}

func TestNamespaceOf(t *testing.T) {
	g := &generation{prefix: "/lab.annex.test/gadgets/"}
	for name, tc := range map[string]struct{ key, want string }{
		"all namespaces as the registry asks": {key: "/lab.annex.test/gadgets"},
		"all namespaces":                      {key: "/lab.annex.test/gadgets/"},
		"a namespace":                         {key: "/lab.annex.test/gadgets/prod", want: "prod"},
		"a namespace with a slash":            {key: "/lab.annex.test/gadgets/prod/", want: "prod"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := g.namespaceOf(tc.key); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
