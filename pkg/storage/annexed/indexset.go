// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/client-go/tools/cache"
)

const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
	// sampleIndex is an index that has nothing and feeds the sample. Those that a selector can
	// ask for begin with "f:" and "l:".
	sampleIndex = "sample"
)

// indexSet is a declaration in the form that one Cacher and its requests need.
// It is not changed after apply, but for what its memo and sample remember.
type indexSet struct {
	fields  []string
	labels  []string
	trigger Trigger
	memo    *attributeMemo
	sample  *sample
	// nameless says that the attributes of the objects have no name, by which the sample knows them.
	nameless bool
	// served are the names of all indexes of the Cacher and dispatch the field by which
	// it knows its trigger: those of the registry are among them.
	served   sets.Set[string]
	dispatch string
}

// newIndexSet prepares the indexes of one storage, at most MaxIndexes, and
// returns the names of those for which there was no room. attributes is the
// function that the Cacher would be given without indexes; example is an empty object.
func newIndexSet(declared Indexes, attributes storage.AttrFunc, example runtime.Object) (set *indexSet, dropped []string) {
	nameless := false
	if _, known, err := attributes(example); err == nil {
		nameless = !known.Has(nameField)
		missing := func(field string) bool { return !known.Has(field) }
		declared.Fields = slices.DeleteFunc(slices.Clone(declared.Fields), missing)
		if declared.Trigger.Field != "" && missing(declared.Trigger.Field) {
			declared.Trigger = Trigger{}
		}
	}
	kept, dropped := declared.limited()
	// A list in one namespace reads a range of keys: no index is faster, and
	// upstream would use one for every request in a namespace.
	kept.Fields = slices.DeleteFunc(kept.Fields, func(field string) bool { return field == namespaceField })
	set = &indexSet{
		fields:   kept.Fields,
		labels:   kept.Labels,
		trigger:  kept.Trigger,
		memo:     &attributeMemo{attributes: attributes},
		nameless: nameless,
	}
	set.sample = newSample(set.values)
	return set, dropped
}

// apply puts the indexes into the configuration of a Cacher, beside those that
// the registry has put there. The trigger replaces one of the registry's, as the
// Cacher takes only one. Where there is no index, one without values feeds the sample.
func (x *indexSet) apply(config *cacher.Config) {
	defer func() { x.remember(config) }()
	config.GetAttrsFunc = x.memo.get
	indexers := cache.Indexers{}
	if config.Indexers != nil {
		maps.Copy(indexers, *config.Indexers)
	}
	for _, field := range x.fields {
		indexers[storage.FieldIndex(field)] = x.fieldValues(field)
	}
	for _, key := range x.labels {
		indexers[storage.LabelIndex(key)] = x.labelValues(key)
	}
	if names := x.names(); len(names) > 0 {
		indexers[names[0]] = x.sampled(indexers[names[0]])
	} else if x.samples() {
		indexers[sampleIndex] = x.sampled(func(any) ([]string, error) { return nil, nil })
	}
	config.Indexers = &indexers
	if name := x.triggerName(); name != "" {
		config.IndexerFuncs = storage.IndexerFuncs{name: x.triggerValue}
	}
}

func (x *indexSet) remember(config *cacher.Config) {
	x.served = sets.New[string]()
	if config.Indexers != nil {
		x.served = sets.KeySet(*config.Indexers).Delete(sampleIndex)
	}
	for name := range config.IndexerFuncs {
		x.dispatch = name
	}
}

// usedByList is the name of the index that upstream reads for the predicate, or "".
// It takes the first that it has.
func (x *indexSet) usedByList(ctx context.Context, predicate storage.SelectionPredicate) string {
	for _, match := range predicate.MatcherIndex(ctx) {
		if x.served.Has(match.IndexName) {
			return match.IndexName
		}
	}
	return ""
}

// usedByWatch is the name of the trigger by which upstream dispatches a watch, in the
// form of the name of an index, or "".
func (x *indexSet) usedByWatch(predicate storage.SelectionPredicate) string {
	if x.dispatch == "" || !slices.Contains(predicate.IndexFields, x.dispatch) {
		return ""
	}
	if _, ok := predicate.Field.RequiresExactMatch(x.dispatch); !ok {
		return ""
	}
	if x.trigger.Label != "" {
		return x.dispatch
	}
	return storage.FieldIndex(x.dispatch)
}

// names are those of the indexes, in the order of preference.
func (x *indexSet) names() []string {
	var names []string
	for _, field := range x.fields {
		names = append(names, storage.FieldIndex(field))
	}
	for _, key := range x.labels {
		names = append(names, storage.LabelIndex(key))
	}
	return names
}

// sampled returns an index function that also tells the sample of the object. One
// of all functions does it.
func (x *indexSet) sampled(function cache.IndexFunc) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		object := obj.(runtime.Object)
		labelSet, fieldSet, err := x.memo.get(object)
		if err != nil {
			return nil, err
		}
		if fieldSet.Has(nameField) && reflect.ValueOf(object).Kind() == reflect.Pointer {
			x.sample.observe(object, labelSet, fieldSet)
		}
		return function(obj)
	}
}

// values are those by which the indexes have an object, by name of the index. A label that
// the object does not have is missing.
func (x *indexSet) values(labelSet labels.Set, fieldSet fields.Set) iter.Seq2[string, string] {
	return func(yield func(index, value string) bool) {
		for _, field := range x.fields {
			if !yield(storage.FieldIndex(field), fieldSet.Get(field)) {
				return
			}
		}
		for _, key := range x.labels {
			if value, ok := labelSet[key]; ok && !yield(storage.LabelIndex(key), value) {
				return
			}
		}
	}
}

// fieldValues returns the index function of a field. An absent field has the
// value "", as it has for a field selector (fields.Set.Get).
//
// Errors cannot happen here: the Cacher has had the attributes of every object
// before it is indexed, and does not keep one that has none.
func (x *indexSet) fieldValues(field string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		_, set, err := x.memo.get(obj.(runtime.Object))
		if err != nil {
			return nil, err
		}
		return []string{set.Get(field)}, nil
	}
}

// labelValues returns the index function of a label. An object without the label
// is not in the index: no selector that wants one value matches it, not even
// "key=" (labels.Requirement.Matches).
func (x *indexSet) labelValues(key string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		set, _, err := x.memo.get(obj.(runtime.Object))
		if err != nil {
			return nil, err
		}
		if value, ok := set[key]; ok {
			return []string{value}, nil
		}
		return nil, nil
	}
}

// triggerName is the field by which the Cacher knows the trigger. For a label it
// is one that no object has: the Cacher looks for triggers in field selectors
// only, see triggerSelector.
func (x *indexSet) triggerName() string {
	if x.trigger.Label != "" {
		return storage.LabelIndex(x.trigger.Label)
	}
	return x.trigger.Field
}

// triggerValue is a storage.IndexerFunc. Objects without the label share the value
// "" with those that have it empty; the Cacher matches every event that it
// dispatches against the whole selector.
func (x *indexSet) triggerValue(obj runtime.Object) string {
	labelSet, fieldSet, err := x.memo.get(obj)
	switch {
	case err != nil:
		return ""
	case x.trigger.Label != "":
		return labelSet.Get(x.trigger.Label)
	default:
		return fieldSet.Get(x.trigger.Field)
	}
}

// forList adds to the predicate of a list the index that offers the fewest
// candidates, unless it offers hardly less than the objects of the namespace, which
// upstream reads in order and need not sort. used tells whether it added one. An
// empty namespace stands for all.
func (x *indexSet) forList(predicate storage.SelectionPredicate, namespace string) (hinted storage.SelectionPredicate, used bool) {
	best := candidate{offers: math.MaxInt}
	for _, c := range x.candidates(predicate) {
		if c.offers < best.offers {
			best = c
		}
	}
	switch {
	case best.field == "" && best.label == "":
		return predicate, false
	case best.offers > fewObjects && 2*best.offers > x.sample.inScope(namespace):
		return predicate, false
	case best.field != "":
		predicate.IndexFields = append([]string{best.field}, predicate.IndexFields...)
	default:
		// Upstream looks at fields first.
		predicate.IndexFields = nil
		predicate.IndexLabels = append([]string{best.label}, predicate.IndexLabels...)
	}
	return predicate, true
}

// candidate is an index that fits a list, and how many objects it offers.
type candidate struct {
	field, label string
	value        string
	offers       int
}

// name is that of the index.
func (c candidate) name() string {
	if c.field != "" {
		return storage.FieldIndex(c.field)
	}
	return storage.LabelIndex(c.label)
}

// has reports whether the index has an object under the value.
func (c candidate) has(labelSet labels.Set, fieldSet fields.Set) bool {
	if c.field != "" {
		return fieldSet.Get(c.field) == c.value
	}
	value, ok := labelSet[c.label]
	return ok && value == c.value
}

func (x *indexSet) candidates(predicate storage.SelectionPredicate) []candidate {
	var found []candidate
	if predicate.Field != nil {
		for _, field := range x.fields {
			if value, ok := predicate.Field.RequiresExactMatch(field); ok {
				found = append(found, candidate{field: field, value: value, offers: x.sample.withValue(storage.FieldIndex(field), value)})
			}
		}
	}
	if predicate.Label != nil {
		for _, key := range x.labels {
			if value, ok := predicate.Label.RequiresExactMatch(key); ok {
				found = append(found, candidate{label: key, value: value, offers: x.sample.withValue(storage.LabelIndex(key), value)})
			}
		}
	}
	return found
}

// forWatch lets the Cacher dispatch by the trigger when the predicate selects one
// value of it that few objects have.
//
// The Cacher gives a watch that it dispatches by a trigger room for ten events, others
// room for a second of them, up to a hundred times as many (k8s.io/apiserver
// pkg/storage/cacher/watch_cache_history.go, suggestedWatchChannelSize). A watch whose
// value most objects have is offered most events in either case, and the more so while
// it is still being sent its initial events: it needs the room.
func (x *indexSet) forWatch(predicate storage.SelectionPredicate) storage.SelectionPredicate {
	if predicate.Field == nil || predicate.Label == nil {
		return predicate
	}
	var value string
	var found bool
	switch {
	case x.trigger.Label != "":
		value, found = predicate.Label.RequiresExactMatch(x.trigger.Label)
	case x.trigger.Field != "":
		value, found = predicate.Field.RequiresExactMatch(x.trigger.Field)
	}
	if !found || x.mostHave(value) {
		return predicate
	}
	if x.trigger.Label != "" {
		predicate.Field = &triggerSelector{inner: predicate.Field, name: x.triggerName(), label: predicate.Label, key: x.trigger.Label}
	}
	predicate.IndexFields = append(slices.Clip(predicate.IndexFields), x.triggerName())
	return predicate
}

// mostHave estimates whether most objects have a value of the trigger.
func (x *indexSet) mostHave(value string) bool {
	var n int
	switch {
	case x.trigger.Label != "":
		n = x.sample.withValue(storage.LabelIndex(x.trigger.Label), value)
	case x.trigger.Field == namespaceField:
		n = x.sample.inScope(value)
	default:
		n = x.sample.withValue(storage.FieldIndex(x.trigger.Field), value)
	}
	return 2*n > x.sample.inScope("")
}

var _ fields.Selector = &triggerSelector{}

// triggerSelector is a field selector that also answers for one label, under a
// name that is not a field. It lets the Cacher dispatch by a label
// (k8s.io/apiserver pkg/storage/cacher/cacher.go, Watch) and selects what inner selects.
type triggerSelector struct {
	inner fields.Selector
	name  string
	label labels.Selector
	key   string
}

// Matches implements fields.Selector.
func (s *triggerSelector) Matches(f fields.Fields) bool { return s.inner.Matches(f) }

// Empty implements fields.Selector.
func (s *triggerSelector) Empty() bool { return s.inner.Empty() }

// RequiresExactMatch implements fields.Selector.
func (s *triggerSelector) RequiresExactMatch(field string) (value string, found bool) {
	if field == s.name {
		return s.label.RequiresExactMatch(s.key)
	}
	return s.inner.RequiresExactMatch(field)
}

// Transform implements fields.Selector. The result answers for no label.
func (s *triggerSelector) Transform(fn fields.TransformFunc) (fields.Selector, error) {
	return s.inner.Transform(fn)
}

// Requirements implements fields.Selector.
func (s *triggerSelector) Requirements() fields.Requirements { return s.inner.Requirements() }

// String implements fields.Selector.
func (s *triggerSelector) String() string { return s.inner.String() }

// DeepCopySelector implements fields.Selector.
func (s *triggerSelector) DeepCopySelector() fields.Selector {
	return &triggerSelector{inner: s.inner.DeepCopySelector(), name: s.name, label: s.label.DeepCopySelector(), key: s.key}
}
