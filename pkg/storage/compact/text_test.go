// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const version = "1125899906842628"

func newGadget() runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "lab.annex.test/v1", "kind": "Gadget"}}
}

func gadgetKind(t testing.TB) *Kind {
	t.Helper()
	kind, err := NewKind(newGadget, func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil }, Unstructured{})
	if err != nil {
		t.Fatal(err)
	}
	return kind
}

// listedByUpstream is what upstream's encoder writes for a list with one item.
func listedByUpstream(t testing.TB, object *unstructured.Unstructured) string {
	t.Helper()
	list := &unstructured.UnstructuredList{Object: map[string]any{}, Items: []unstructured.Unstructured{*object}}
	var written bytes.Buffer
	if err := json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, json.SerializerOptions{StreamingCollectionsEncoding: true}).Encode(list, &written); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(written.String(), `{"items":[`), "]}\n")
}

// assertText compares the JSON of an Object with upstream's, and what is decoded from it with what
// upstream decodes from its own.
func assertText(t *testing.T, content map[string]any) {
	t.Helper()
	kind := gadgetKind(t)
	full := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	object := &Object{}
	if err := kind.fill(object, full); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(content, full.Object); diff != "" {
		t.Errorf("the object was changed (-before +after):\n%s", diff)
	}
	object.SetResourceVersion(version)
	full.SetResourceVersion(version)
	want := listedByUpstream(t, full)
	var written bytes.Buffer
	if err := object.writeTo(&written); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, written.String()); diff != "" {
		t.Errorf("JSON (-upstream +compact):\n%s", diff)
	}
	if diff := cmp.Diff("<"+want+">", string(object.text.between("<", version, ">"))); diff != "" {
		t.Errorf("JSON at once (-upstream +compact):\n%s", diff)
	}
	decoded, err := object.full()
	if err != nil {
		t.Fatal(err)
	}
	upstream := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal([]byte(want), &upstream.Object); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(upstream, decoded); diff != "" {
		t.Errorf("decoded (-upstream +compact):\n%s", diff)
	}
	partial := newGadget()
	if err := object.decodeAs(true, partial); err != nil {
		t.Fatal(err)
	}
	wanted := newGadget().(*unstructured.Unstructured)
	wanted.Object["metadata"] = upstream.Object["metadata"]
	if diff := cmp.Diff(wanted, partial); diff != "" {
		t.Errorf("metadata (-upstream +compact):\n%s", diff)
	}
}

func TestText(t *testing.T) {
	deep := map[string]any{}
	for range 200 {
		deep = map[string]any{"in": deep}
	}
	tests := map[string]map[string]any{
		"empty":                             {},
		"no metadata":                       {"apiVersion": "lab.annex.test/v1", "kind": "Gadget"},
		"empty metadata":                    {"metadata": map[string]any{}},
		"a resourceVersion":                 {"metadata": map[string]any{"name": "a", "resourceVersion": "7", "uid": "u"}},
		"keys around the metadata":          {"a": int64(1), "metadata": map[string]any{"name": "a"}, "metadatb": int64(2), "metadat": int64(3)},
		"keys around the resourceVersion":   {"metadata": map[string]any{"resourceVersio": "x", "resourceVersionn": "y", "z": "z"}},
		"text that looks like the place":    {"a": `"resourceVersion":""`, "metadata": map[string]any{"annotations": map[string]any{"resourceVersion": "", "metadata": `{"resourceVersion":""}`}}},
		"the same keys elsewhere":           {"a": map[string]any{"metadata": map[string]any{"resourceVersion": "9"}}, "metadata": map[string]any{"name": "n"}},
		"HTML, unicode, invalid UTF-8":      {"a": "<&>\u2028\u2029\u00e9\U0001f600\x00\x1f\\\"/", "b": "\xff\xfe", "\xff": "key", "<k>": "key"},
		"numbers":                           {"a": int64(math.MaxInt64), "b": int64(math.MinInt64), "c": 1e21, "d": 0.1, "e": 1.0, "f": math.SmallestNonzeroFloat64, "g": -1e-7, "h": math.MaxFloat64},
		"nulls, empty maps and empty lists": {"a": nil, "b": map[string]any{}, "c": []any{}, "d": []any{nil, map[string]any{}, []any{}}},
		"deep":                              {"spec": deep},
		"huge":                              {"spec": strings.Repeat("x", 1<<20)},
	}
	for name, content := range tests {
		t.Run(name, func(t *testing.T) { assertText(t, content) })
	}
}

func TestMetadataMustBeAnObject(t *testing.T) {
	for name, metadata := range map[string]any{"text": "text", "null": nil, "list": []any{}} {
		t.Run(name, func(t *testing.T) {
			if _, err := newTextEncoder().encode(map[string]any{"metadata": metadata}); err == nil {
				t.Error("encode() = nil, want an error")
			}
		})
	}
}

// FuzzText lets the fuzzer make up the JSON of an object.
func FuzzText(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"a":[1,2.5,null,"<&>"]}}`,
		`{"metadata":{"annotations":{"a":"\u0001RV"}},"a":"\ud800","b":1e400}`, `{"metadata":{},"metadata":{"a":1}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var content map[string]any
		if err := utiljson.Unmarshal(data, &content); err != nil || content == nil {
			t.Skip("not an object")
		}
		if metadata, ok := content["metadata"]; ok {
			if _, ok := metadata.(map[string]any); !ok {
				t.Skip("see TestMetadataMustBeAnObject")
			}
		}
		assertText(t, content)
	})
}
