// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rawObject is an object as it is stored. The metadata carries nothing but the
// resource version, which storage needs and which is not stored.
type rawObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	// content is JSON without the line break at its end. It must not be changed.
	content []byte
}

var _ runtime.Object = &rawObject{}

// DeepCopyObject implements runtime.Object. The content is shared: nobody changes it.
func (o *rawObject) DeepCopyObject() runtime.Object {
	copied := *o
	o.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	return &copied
}

// rawList is what storage lists into.
type rawList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []rawObject
}

var _ runtime.Object = &rawList{}

// DeepCopyObject implements runtime.Object.
func (l *rawList) DeepCopyObject() runtime.Object {
	copied := *l
	l.ListMeta.DeepCopyInto(&copied.ListMeta)
	copied.Items = make([]rawObject, len(l.Items))
	for i := range l.Items {
		copied.Items[i] = *l.Items[i].DeepCopyObject().(*rawObject)
	}
	return &copied
}

func newRawObject() runtime.Object { return &rawObject{} }

func newRawList() runtime.Object { return &rawList{} }

// rawCodec stores the content of a rawObject as apiextensions stores JSON: with a
// line break behind it. It reads what other encodings apiextensions may have
// written by way of its own decoder.
type rawCodec struct {
	// stored decodes everything but JSON.
	stored runtime.Decoder
}

var _ runtime.Codec = rawCodec{}

// Encode implements runtime.Encoder.
func (c rawCodec) Encode(object runtime.Object, w io.Writer) error {
	raw, ok := object.(*rawObject)
	if !ok {
		return fmt.Errorf("encoding a %T as it is: only raw objects can be", object)
	}
	if _, err := w.Write(raw.content); err != nil {
		return err
	}
	_, err := w.Write([]byte{'\n'})
	return err
}

// Identifier implements runtime.Encoder.
func (c rawCodec) Identifier() runtime.Identifier { return "annex-raw" }

// Decode implements runtime.Decoder.
func (c rawCodec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	raw, ok := into.(*rawObject)
	if !ok {
		return nil, nil, fmt.Errorf("decoding into a %T as it is: only raw objects can be", into)
	}
	if len(data) > 0 && data[0] == '{' {
		raw.content = bytes.TrimSuffix(data, []byte{'\n'})
		return raw, &schema.GroupVersionKind{}, nil
	}
	decoded, _, err := c.stored.Decode(data, nil, &unstructured.Unstructured{})
	if err != nil {
		return nil, nil, err
	}
	object, ok := decoded.(*unstructured.Unstructured)
	if !ok {
		return nil, nil, fmt.Errorf("decoding a stored object: got a %T", decoded)
	}
	if raw.content, err = json.Marshal(object.Object); err != nil {
		return nil, nil, err
	}
	return raw, &schema.GroupVersionKind{}, nil
}
