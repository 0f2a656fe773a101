// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/client-go/tools/cache"
)

// stillStorage is an etcd with objects that nobody changes.
type stillStorage struct {
	storage.Interface // what a cache does not call
	objects           int
	perColor          int
}

func (s stillStorage) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (s stillStorage) GetList(_ context.Context, _ string, _ storage.ListOptions, listObj kruntime.Object) error {
	accessor, err := meta.ListAccessor(listObj)
	if err != nil {
		return err
	}
	accessor.SetResourceVersion("1000000")
	list, ok := listObj.(*unstructured.UnstructuredList)
	if !ok {
		return nil // of other kinds there are none
	}
	list.Items = make([]unstructured.Unstructured, s.objects)
	for i := range list.Items {
		list.Items[i] = *benchGadget(i, s.objects/s.perColor)
	}
	return nil
}

func (s stillStorage) Watch(ctx context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		return nil, errSynthetic // the cache lists then
	}
	w := watch.NewFake()
	context.AfterFunc(ctx, w.Stop)
	return w, nil
}

func (s stillStorage) GetCurrentResourceVersion(context.Context) (uint64, error) { return 1000000, nil }
func (s stillStorage) RequestWatchProgress(context.Context) error                { return nil }
func (s stillStorage) EnableResourceSizeEstimation(storage.KeysFunc) error       { return nil }
func (s stillStorage) CompactRevision() int64                                    { return 0 }

// benchGadget has 1.5 KB of JSON, like an endpoint of a CNI.
func benchGadget(i, colors int) *unstructured.Unstructured {
	object := newGadget().(*unstructured.Unstructured)
	object.SetNamespace(fmt.Sprintf("team-%02d", i%50))
	object.SetName(fmt.Sprintf("gadget-%06d", i))
	object.SetResourceVersion(fmt.Sprint(i + 1))
	object.SetLabels(map[string]string{teamLabel: fmt.Sprintf("node-%d", i%colors), "app": "web"})
	spec := map[string]any{"color": fmt.Sprintf("node-%d", i%colors), "size": int64(i % 7), "hot": i%2 == 0}
	for j := range 20 {
		spec[fmt.Sprintf("note%02d", j)] = strings.Repeat("x", 40)
	}
	object.Object["spec"] = spec
	return object
}

func openStill(b *testing.B, objects int, indexes Indexes) storage.Interface {
	b.Helper()
	const prefix = "/gadgets/"
	s, destroy, err := assemble(stillStorage{objects: objects, perColor: 25}, func() {}, Config{WatchCache: true, Indexes: staticIndexes{indexes}}, cacher.Config{
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       gadgetResource(),
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix:      prefix,
		KeyFunc:             func(obj kruntime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, obj) },
		GetAttrsFunc:        gadgetAttributes(),
		NewFunc:             newGadget,
		NewListFunc:         newGadgetList,
		Indexers:            &cache.Indexers{},
		Codec:               unstructured.UnstructuredJSONScheme,
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(destroy)
	eventually(b, "cache to be filled", func() bool { return s.ReadinessCheck() == nil })
	return s
}

// BenchmarkSelectiveList lists 25 objects by a field and by a label. Without
// indexes its time grows with the number of objects, with them it does not.
func BenchmarkSelectiveList(b *testing.B) {
	selectors := map[string]storage.SelectionPredicate{
		"field":           {Field: fields.OneTermEqualSelector(colorField, "node-7"), Label: labels.Everything(), GetAttrs: gadgetAttributes()},
		"label":           {Field: fields.Everything(), Label: labels.SelectorFromSet(labels.Set{teamLabel: "node-7"}), GetAttrs: gadgetAttributes()},
		"field, limit":    {Field: fields.OneTermEqualSelector(colorField, "node-7"), Label: labels.Everything(), GetAttrs: gadgetAttributes(), Limit: 500},
		"field, limit 25": {Field: fields.OneTermEqualSelector(colorField, "node-7"), Label: labels.Everything(), GetAttrs: gadgetAttributes(), Limit: 25},
	}
	for _, objects := range []int{20_000, 100_000} {
		for name, indexes := range map[string]Indexes{
			"unindexed": {},
			"indexed":   {Fields: []string{colorField}, Labels: []string{teamLabel}},
		} {
			s := openStill(b, objects, indexes)
			for selector, predicate := range selectors {
				b.Run(fmt.Sprintf("%d/%s/%s", objects, selector, name), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						list := &unstructured.UnstructuredList{}
						if err := s.GetList(b.Context(), "/gadgets/", storage.ListOptions{ResourceVersion: "1", ResourceVersionMatch: "NotOlderThan", Predicate: predicate, Recursive: true}, list); err != nil {
							b.Fatal(err)
						}
						if len(list.Items) != 25 {
							b.Fatalf("got %d objects, want 25", len(list.Items))
						}
					}
				})
			}
		}
	}
}

// BenchmarkIndexMemory reports what 100,000 objects of 1.5 KB take in the cache.
func BenchmarkIndexMemory(b *testing.B) {
	for name, indexes := range map[string]Indexes{
		"no index":    {},
		"two indexes": {Fields: []string{colorField}, Labels: []string{teamLabel}, Trigger: Trigger{Field: colorField}},
		"unique":      {Fields: []string{nameField}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				openStill(b, 100_000, indexes)
				b.ReportMetric(float64(heap()-before)/100_000, "B/object")
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
