// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"io"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	_ runtime.Object          = &Object{}
	_ metav1.Object           = &Object{}
	_ runtime.CacheableObject = &Object{}
)

// Object is a custom resource as its JSON. It has the metadata by which caches know
// objects: name, namespace, UID and resourceVersion; the rest reads as absent, and is in the JSON.
//
// Copies share the JSON, which is never changed. The zero value stands for no object.
type Object struct {
	*content
	// resourceVersion is not part of content: it is known only after the object was
	// decoded, and differs in the event that tells of its deletion.
	resourceVersion string
}

// content is what copies of an Object share.
type content struct {
	metadata
	kind   *Kind
	labels labels.Set
	fields fields.Set
	// text is nil in an object that was not decoded: a bookmark, or one to be decoded into.
	text  text
	place place
	// target, if any, is the object that a read from etcd is to fill instead of this one.
	target runtime.Object
}

// DeepCopyObject implements runtime.Object. The copy shares the JSON.
func (o *Object) DeepCopyObject() runtime.Object {
	if o.content != nil && o.text.json == nil {
		bookmark := &content{metadata: o.metadata, kind: o.kind, target: o.target}
		bookmark.annotations = maps.Clone(o.annotations)
		return &Object{content: bookmark, resourceVersion: o.resourceVersion}
	}
	shared := *o
	return &shared
}

// GetObjectKind implements runtime.Object. What is set through it is lost.
func (o *Object) GetObjectKind() schema.ObjectKind {
	typeMeta := &metav1.TypeMeta{}
	if o.content != nil {
		typeMeta.SetGroupVersionKind(o.kind.gvk)
	}
	return typeMeta
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (o *Object) GetObjectMeta() metav1.Object { return o }

// GetResourceVersion implements metav1.Object.
func (o *Object) GetResourceVersion() string { return o.resourceVersion }

// SetResourceVersion implements metav1.Object.
func (o *Object) SetResourceVersion(version string) { o.resourceVersion = version }

// GetObject implements runtime.CacheableObject. It returns the decoded object, which
// belongs to the caller; for an Object that cannot be decoded, one without content.
func (o *Object) GetObject() runtime.Object {
	full, err := o.full()
	if err != nil {
		return o.kind.newFunc()
	}
	return full
}

// CacheEncode implements runtime.CacheableObject. It writes plain JSON, and events of
// plain JSON, from the bytes that it has, and gives the decoded object to any other encoder: to one
// that keeps nothing but the metadata, the metadata alone.
func (o *Object) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	encoding := o.kind.encodings.of(id)
	if o.text.json != nil {
		switch {
		case encoding.plain:
			return writeOnce(w, o.text.between(encoding.before, o.resourceVersion, encoding.after))
		case encoding.metadataOnly:
			partial := o.kind.newFunc()
			if err := o.decodeAs(true, partial); err != nil {
				return err
			}
			return encode(partial, w)
		}
	}
	full, err := o.full()
	if err != nil {
		return err
	}
	return encode(full, w)
}

// writeOnce writes an event or an object as upstream's encoders do: at once. On a web
// socket every write is a message of its own.
func writeOnce(w io.Writer, data []byte) error {
	if splice, ok := w.(runtime.Splice); ok {
		splice.Splice(data)
		return nil
	}
	_, err := w.Write(data)
	return err
}

// full is the decoded object.
func (o *Object) full() (runtime.Object, error) {
	into := o.kind.newFunc()
	return into, o.decode(into)
}

// decode makes into what the Object stands for.
func (o *Object) decode(into runtime.Object) error {
	if o.text.json != nil {
		return o.kind.converter.FromJSON(o.text.between("", o.resourceVersion, ""), into)
	}
	object, err := meta.Accessor(into)
	if err != nil {
		return err
	}
	object.SetResourceVersion(o.resourceVersion)
	if len(o.annotations) > 0 {
		object.SetAnnotations(o.annotations)
	}
	return nil
}

// decodeAs is decode, or leaves everything out but the kind and the metadata.
func (o *Object) decodeAs(metadataOnly bool, into runtime.Object) error {
	if !metadataOnly {
		return o.decode(into)
	}
	return o.kind.converter.FromJSON(o.text.metadataWith(o.kind.head, o.resourceVersion), into)
}

// size is the length of the JSON.
func (o *Object) size() int { return len(o.text.json) + len(o.resourceVersion) }

// writeTo writes the JSON of the object piece by piece. w has a buffer.
func (o *Object) writeTo(w io.Writer) error {
	if _, err := w.Write(o.text.json[:o.text.versionAt]); err != nil {
		return err
	}
	if _, err := io.WriteString(w, o.resourceVersion); err != nil {
		return err
	}
	_, err := w.Write(o.text.json[o.text.versionAt:])
	return err
}

// List is a list of Objects.
type List struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []Object
}

var _ runtime.Object = &List{}

// DeepCopyObject implements runtime.Object. The copy shares the JSON of the items.
func (l *List) DeepCopyObject() runtime.Object {
	shared := &List{TypeMeta: l.TypeMeta, Items: slices.Clone(l.Items)}
	l.ListMeta.DeepCopyInto(&shared.ListMeta)
	return shared
}
