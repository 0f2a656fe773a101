// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

const (
	metadataKey        = "metadata"
	resourceVersionKey = "resourceVersion"
)

// text is the JSON of an object, without line break, but for the value of
// metadata.resourceVersion, which is empty in it.
type text struct {
	json []byte
	// versionAt is where the resourceVersion goes, within its quotation marks.
	versionAt int
	// metadataAt and metadataEnd enclose the value of metadata.
	metadataAt, metadataEnd int
}

// between is the JSON with a resourceVersion, between two other parts.
func (t text) between(before, resourceVersion, after string) []byte {
	all := make([]byte, 0, len(before)+len(t.json)+len(resourceVersion)+len(after))
	all = append(all, before...)
	all = append(all, t.json[:t.versionAt]...)
	all = append(all, resourceVersion...)
	all = append(all, t.json[t.versionAt:]...)
	return append(all, after...)
}

// metadataWith is the JSON of an object that has nothing but the keys in head, which ends before
// the value of metadata, and the metadata.
func (t text) metadataWith(head, resourceVersion string) []byte {
	all := make([]byte, 0, len(head)+t.metadataEnd-t.metadataAt+len(resourceVersion)+1)
	all = append(all, head...)
	all = append(all, t.json[t.metadataAt:t.versionAt]...)
	all = append(all, resourceVersion...)
	all = append(all, t.json[t.versionAt:t.metadataEnd]...)
	return append(all, '}')
}

// textEncoder writes what upstream's encoder writes for the items of a list: encoding/json,
// with HTML escaped and keys in order (k8s.io/apimachinery
// pkg/runtime/serializer/json/collections.go). It goes through the first two levels of an object itself, so that it knows
// where the resourceVersion is, whatever the values contain.
type textEncoder struct {
	buffer bytes.Buffer
	json   *json.Encoder
}

func newTextEncoder() *textEncoder {
	e := &textEncoder{}
	e.json = json.NewEncoder(&e.buffer)
	return e
}

// encode returns the text of an object. The result does not refer to content.
func (e *textEncoder) encode(content map[string]any) (text, error) {
	e.buffer.Reset()
	metadata, ok := content[metadataKey].(map[string]any)
	if _, exists := content[metadataKey]; exists && !ok {
		return text{}, fmt.Errorf("metadata is %T and not an object", content[metadataKey])
	}
	var t text
	err := e.object(keysWith(content, metadataKey), func(key string) error {
		if key != metadataKey {
			return e.value(content[key])
		}
		t.metadataAt = e.buffer.Len()
		defer func() { t.metadataEnd = e.buffer.Len() }()
		return e.object(keysWith(metadata, resourceVersionKey), func(key string) error {
			if key != resourceVersionKey {
				return e.value(metadata[key])
			}
			t.versionAt = e.buffer.Len() + 1
			return e.value("")
		})
	})
	t.json = bytes.Clone(e.buffer.Bytes())
	return t, err
}

// keysWith are the keys of an object and one more, in the order in which they are encoded.
func keysWith(object map[string]any, key string) []string {
	keys := slices.Collect(maps.Keys(object))
	if _, ok := object[key]; !ok {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (e *textEncoder) object(keys []string, value func(key string) error) error {
	e.buffer.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			e.buffer.WriteByte(',')
		}
		if err := e.value(key); err != nil {
			return err
		}
		e.buffer.WriteByte(':')
		if err := value(key); err != nil {
			return err
		}
	}
	e.buffer.WriteByte('}')
	return nil
}

func (e *textEncoder) value(value any) error {
	if err := e.json.Encode(value); err != nil {
		return err
	}
	e.buffer.Truncate(e.buffer.Len() - 1) // Encode ends with a line break
	return nil
}
