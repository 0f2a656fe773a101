// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	colorField = "spec.color"
	sizeField  = "spec.size"
	hotField   = "spec.hot"
	teamLabel  = "team"
	tierLabel  = "example.com/tier"
)

func gadgetKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "lab.annex.test", Version: "v1", Kind: "Gadget"}
}

func gadgetResource() schema.GroupResource {
	return schema.GroupResource{Group: "lab.annex.test", Resource: "gadgets"}
}

func newGadget() runtime.Object {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gadgetKind())
	return object
}

func newGadgetList() runtime.Object {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gadgetKind().GroupVersion().WithKind("GadgetList"))
	return list
}

// gadgetAttributes is what apiextensions passes for a custom resource with a
// string, an integer and a boolean among its selectable fields.
func gadgetAttributes() storage.AttrFunc {
	strategy := customresource.NewStrategy(nil, true, gadgetKind(), nil, nil, nil, nil, nil, []apiextensionsv1.SelectableField{
		{JSONPath: "." + colorField}, {JSONPath: "." + sizeField}, {JSONPath: "." + hotField},
	})
	return strategy.GetAttrs
}

// gadgetIndexes declares everything that there is, dispatched by trigger.
func gadgetIndexes(trigger Trigger) Indexes {
	return Indexes{Fields: []string{colorField, sizeField, hotField}, Labels: []string{teamLabel, tierLabel}, Trigger: trigger}
}

// staticIndexes is an IndexSource that never changes.
type staticIndexes struct{ indexes Indexes }

func (s staticIndexes) Follow(_ schema.GroupResource, _ runtime.Object, declare func(Indexes)) func() {
	declare(s.indexes)
	return func() {}
}

// openGadgets opens a storage of gadgets below prefix. Nil indexes are none.
func openGadgets(t testing.TB, client *kubernetes.Client, prefix string, indexes IndexSource) storage.Interface {
	t.Helper()
	s, _ := openGadgetsAs(t, client, prefix, Config{WatchCache: true, Indexes: indexes})
	return s
}

// openGadgetsAs opens a storage of gadgets below prefix and returns what closes it, which
// the end of the test does as well. It waits for the cache unless that is lazy.
func openGadgetsAs(t testing.TB, client *kubernetes.Client, prefix string, cfg Config) (s storage.Interface, closeStorage func()) {
	t.Helper()
	versioner := storage.APIObjectVersioner{}
	config := cacher.Config{
		Versioner:           versioner,
		GroupResource:       gadgetResource(),
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix:      prefix,
		KeyFunc:             func(obj runtime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix, obj) },
		GetAttrsFunc:        gadgetAttributes(),
		NewFunc:             newGadget,
		NewListFunc:         newGadgetList,
		Indexers:            &cache.Indexers{},
		Codec:               unstructured.UnstructuredJSONScheme,
	}
	kind, err := cfg.compacted(&config)
	if err != nil {
		t.Fatal(err)
	}
	compactor := etcd3.NewCompactor(client.Client, 0, clock.RealClock{}, nil)
	raw, err := etcd3.New(client, compactor, config.Codec, config.NewFunc, config.NewListFunc, "/registry", prefix, gadgetResource(), newSteeredTransformer(),
		etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(config.Codec, versioner), versioner)
	if err != nil {
		compactor.Stop()
		t.Fatal(err)
	}
	s, destroy, err := assemble(raw, raw.Close, cfg, config, kind)
	if err != nil {
		compactor.Stop()
		t.Fatal(err)
	}
	closeStorage = sync.OnceFunc(func() {
		destroy()
		compactor.Stop()
	})
	t.Cleanup(closeStorage)
	if !cfg.Lazy {
		eventually(t, "storage to be ready", func() bool { return s.ReadinessCheck() == nil })
	}
	return s, closeStorage
}

// dice makes choices from bytes, so that a fuzzer can steer them. Without bytes
// every choice is the first.
type dice struct{ data []byte }

func (d *dice) empty() bool { return len(d.data) == 0 }

// pick returns a number below n.
func (d *dice) pick(n int) int {
	if d.empty() {
		return 0
	}
	chosen := int(d.data[0]) % n
	d.data = d.data[1:]
	return chosen
}

func oneOf[T any](d *dice, choices ...T) T { return choices[d.pick(len(choices))] }

// absent is the choice of not setting a value.
type absent struct{}

// gadget returns an object with random attributes. Its color may be of any type,
// as in an object that is older than its schema.
func (d *dice) gadget(namespace, name string) *unstructured.Unstructured {
	object := newGadget().(*unstructured.Unstructured)
	object.SetNamespace(namespace)
	object.SetName(name)
	spec := map[string]any{}
	for field, value := range map[string]any{
		"color": oneOf[any](d, "red", "blue", absent{}, "", nil, "3", "true", "a,b=c\\d", int64(3), false),
		"size":  oneOf[any](d, int64(3), absent{}, int64(0), int64(9007199254740993), 1.5, nil),
		"hot":   oneOf[any](d, true, absent{}, false),
	} {
		if value != (absent{}) {
			spec[field] = value
		}
	}
	if d.pick(8) > 0 {
		object.Object["spec"] = spec
	}
	set := map[string]string{}
	for key, value := range map[string]string{
		teamLabel: oneOf(d, "a", "b", "", "-"),
		tierLabel: oneOf(d, "gold", "", "-"),
	} {
		if value != "-" {
			set[key] = value
		}
	}
	if len(set) > 0 {
		object.SetLabels(set)
	}
	return object
}

// fieldSelector returns a selector of up to three terms.
func (d *dice) fieldSelector(t testing.TB) fields.Selector {
	t.Helper()
	terms := make([]string, d.pick(4))
	for i := range terms {
		field := oneOf(d, colorField, sizeField, hotField, nameField, namespaceField)
		value := oneOf(d, "red", "3", "true", "", "false", "0", "blue", "9007199254740993", "1.5", "<nil>", `a\,b\=c\\d`, "a", "n1", "absent")
		terms[i] = field + oneOf(d, "=", "==", "!=") + value
	}
	selector, err := fields.ParseSelector(strings.Join(terms, ","))
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

// labelSelector returns a selector of up to three requirements.
func (d *dice) labelSelector(t testing.TB) labels.Selector {
	t.Helper()
	terms := make([]string, d.pick(4))
	for i := range terms {
		key := oneOf(d, teamLabel, tierLabel, "unknown")
		terms[i] = fmt.Sprintf(oneOf(d, "%s=a", "%s=", "%s!=a", "%s in (a,b)", "%s in (b)", "%s in ()", "%s notin (a,gold)", "%s", "!%s", "%s=gold", "%s==b"), key)
	}
	selector, err := labels.Parse(strings.Join(terms, ","))
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

func (d *dice) predicate(t testing.TB) storage.SelectionPredicate {
	t.Helper()
	return storage.SelectionPredicate{Field: d.fieldSelector(t), Label: d.labelSelector(t), GetAttrs: gadgetAttributes()}
}

func (d *dice) trigger() Trigger {
	return oneOf(d, Trigger{Field: colorField}, Trigger{Label: teamLabel}, Trigger{Field: hotField}, Trigger{Label: tierLabel},
		Trigger{Field: sizeField}, Trigger{Field: nameField}, Trigger{Field: namespaceField}, Trigger{})
}
