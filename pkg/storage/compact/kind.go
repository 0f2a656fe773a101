// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"fmt"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/client-go/tools/cache"
)

// Converter turns objects into what JSON encodes and back.
type Converter interface {
	// ToContent returns the content of an object. It may share it.
	ToContent(object runtime.Object) (map[string]any, error)
	// FromJSON replaces the content of an object. It keeps no reference to data.
	FromJSON(data []byte, into runtime.Object) error
}

// Kind is one version of a resource: how its objects become Objects and back.
type Kind struct {
	gvk        schema.GroupVersionKind
	newFunc    func() runtime.Object
	attributes storage.AttrFunc
	converter  Converter
	// head is how the JSON of an object with nothing but metadata begins.
	head      string
	encodings *encodings
	encoders  *sync.Pool
	runs      *runs
}

// NewKind returns the kind of the objects that newFunc makes, for a registry that selects by attributes.
// converter is Unstructured{} for custom resources.
func NewKind(newFunc func() runtime.Object, attributes storage.AttrFunc, converter Converter) (*Kind, error) {
	gvk := newFunc().GetObjectKind().GroupVersionKind()
	apiVersion, err := utiljson.Marshal(gvk.GroupVersion().String())
	if err != nil {
		return nil, err
	}
	kind, err := utiljson.Marshal(gvk.Kind)
	if err != nil {
		return nil, err
	}
	return &Kind{
		gvk: gvk, newFunc: newFunc, attributes: attributes, converter: converter,
		head:      fmt.Sprintf(`{"apiVersion":%s,"kind":%s,"metadata":`, apiVersion, kind),
		encodings: newEncodings(gvk.GroupVersion()),
		encoders:  &sync.Pool{New: func() any { return newTextEncoder() }},
		runs:      newRuns(),
	}, nil
}

// Apply makes the objects of a cache those of the kind. Indexes and triggers that the
// registry has chosen, which custom resources have none of, are given decoded objects.
func (k *Kind) Apply(config *cacher.Config) {
	config.NewFunc, config.NewListFunc = k.New, k.NewList
	config.GetAttrsFunc = k.Attributes
	config.Codec = k.Codec(config.Codec)
	triggers := storage.IndexerFuncs{}
	for name, trigger := range config.IndexerFuncs {
		triggers[name] = func(object runtime.Object) string { return trigger(decoded(object)) }
	}
	config.IndexerFuncs = triggers
	if config.Indexers == nil {
		return
	}
	indexers := cache.Indexers{}
	for name, index := range *config.Indexers {
		indexers[name] = func(object any) ([]string, error) {
			return index(decoded(object.(runtime.Object))) //nolint:forcetypeassert // caches hold objects
		}
	}
	config.Indexers = &indexers
}

func decoded(object runtime.Object) runtime.Object {
	if compact, ok := object.(*Object); ok {
		return compact.GetObject()
	}
	return object
}

// New returns an Object without content.
func (k *Kind) New() runtime.Object { return &Object{content: &content{kind: k}} }

// NewList returns an empty list of Objects.
func (k *Kind) NewList() runtime.Object { return &List{} }

// Attributes is a storage.AttrFunc for Objects and for what they stand for.
func (k *Kind) Attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	compact, ok := object.(*Object)
	switch {
	case !ok:
		return k.attributes(object)
	case compact.content == nil || compact.text.json == nil:
		return k.attributes(k.newFunc())
	default:
		return compact.labels, compact.fields, nil
	}
}

// fill makes an Object of a decoded one.
func (k *Kind) fill(object *Object, full runtime.Object) error {
	accessor, err := meta.Accessor(full)
	if err != nil {
		return err
	}
	all, err := k.converter.ToContent(full)
	if err != nil {
		return err
	}
	c := &content{kind: k, metadata: metadata{name: accessor.GetName(), namespace: accessor.GetNamespace(), uid: accessor.GetUID()}}
	if c.labels, c.fields, err = k.attributes(full); err != nil {
		return err
	}
	encoder := k.encoders.Get().(*textEncoder)
	defer k.encoders.Put(encoder)
	if c.text, err = encoder.encode(all); err != nil {
		return err
	}
	k.runs.locate(c)
	object.content, object.resourceVersion = c, accessor.GetResourceVersion()
	return nil
}

var _ runtime.Codec = &codec{}

// codec decodes Objects where the target is one, or where there is none, as for the events of etcd.
// Everything else is left to the codec of the registry.
type codec struct {
	runtime.Codec
	kind *Kind
}

// Codec returns a codec for an etcd3 store over the one that the registry has chosen.
func (k *Kind) Codec(inner runtime.Codec) runtime.Codec { return &codec{Codec: inner, kind: k} }

// Decode implements runtime.Decoder.
func (c *codec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, ok := into.(*Object)
	var target runtime.Object
	switch {
	case into == nil:
		object = &Object{}
	case ok:
		target = c.kind.newFunc()
	default:
		return c.Codec.Decode(data, defaults, into)
	}
	full, gvk, err := c.Codec.Decode(data, defaults, target)
	if err != nil {
		return nil, gvk, err
	}
	return object, gvk, c.kind.fill(object, full)
}

// Encode implements runtime.Encoder. Of Objects there is only the empty one with which the
// Cacher checks its codec; to convert it may take a webhook, so its kind must do.
func (c *codec) Encode(object runtime.Object, w io.Writer) error {
	if _, ok := object.(*Object); ok {
		_, err := io.WriteString(w, c.kind.head+"{}}")
		return err
	}
	return c.Codec.Encode(object, w)
}

var _ Converter = Unstructured{}

// Unstructured is the Converter of custom resources.
type Unstructured struct{}

// ToContent implements Converter.
func (Unstructured) ToContent(object runtime.Object) (map[string]any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a custom resource is %T", object)
	}
	return u.Object, nil
}

// FromJSON implements Converter.
func (Unstructured) FromJSON(data []byte, into runtime.Object) error {
	u, ok := into.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a custom resource is to become %T", into)
	}
	u.Object = nil
	return utiljson.Unmarshal(data, &u.Object)
}
