// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
	"k8s.io/apiserver/pkg/storage"
)

const gadgetJSON = `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"g","namespace":"n","uid":"u","labels":{"a":"<b>"}},"spec":{"size":3}}`

// decodedGadget is what the codec makes of gadgetJSON as an event of etcd has it, at version.
func decodedGadget(t *testing.T) *Object {
	t.Helper()
	decoded, _, err := gadgetKind(t).Codec(unstructured.UnstructuredJSONScheme).Decode([]byte(gadgetJSON), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	object, ok := decoded.(*Object)
	if !ok {
		t.Fatalf("Decode() = %T, want an Object", decoded)
	}
	object.SetResourceVersion(version)
	return object
}

func serializer(options json.SerializerOptions) runtime.Serializer {
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, options)
}

// versioned is an encoder as custom resources are served with.
func versioned(encoder runtime.Encoder, group string) runtime.Encoder {
	scheme := runtime.NewScheme()
	return versioning.NewCodec(encoder, nil, runtime.UnsafeObjectConvertor(scheme), scheme, unstructuredTyper{}, nil, schema.GroupVersion{Group: group, Version: "v1"}, nil, "test")
}

type unstructuredTyper struct{ runtime.ObjectTyper }

func (unstructuredTyper) ObjectKinds(object runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return []schema.GroupVersionKind{object.GetObjectKind().GroupVersionKind()}, false, nil
}

// TestEncoders lets encoders write an Object, and the object that it stands for.
func TestEncoders(t *testing.T) {
	tests := map[string]struct {
		encoder runtime.Encoder
		// copied is whether the bytes are those that the Object has.
		copied bool
	}{
		"JSON":                          {serializer(json.SerializerOptions{}), true},
		"strict JSON":                   {serializer(json.SerializerOptions{Strict: true}), true},
		"JSON of the version":           {versioned(serializer(json.SerializerOptions{}), "lab.annex.test"), true},
		"JSON of another version":       {versioned(serializer(json.SerializerOptions{}), "other.test"), false},
		"pretty JSON":                   {serializer(json.SerializerOptions{Pretty: true}), false},
		"pretty JSON of the version":    {versioned(serializer(json.SerializerOptions{Pretty: true}), "lab.annex.test"), false},
		"YAML":                          {serializer(json.SerializerOptions{Yaml: true}), false},
		"protobuf, which it cannot be":  {protobuf.NewSerializer(nil, nil), false},
		"an encoder that nobody knows":  {strangeEncoder{}, false},
		"the unstructured JSON scheme ": {unstructured.UnstructuredJSONScheme, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := decodedGadget(t)
			full, err := object.full()
			if err != nil {
				t.Fatal(err)
			}
			var want, got bytes.Buffer
			wantErr, gotErr := tc.encoder.Encode(full, &want), tc.encoder.Encode(object, &got)
			if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
				t.Errorf("error %v, want %v", gotErr, wantErr)
			}
			if diff := cmp.Diff(want.String(), got.String()); diff != "" {
				t.Errorf("bytes (-decoded +compact):\n%s", diff)
			}
			if plain := object.kind.encodings.of(tc.encoder.Identifier()).plain; plain != tc.copied {
				t.Errorf("bytes copied: %v, want %v", plain, tc.copied)
			}
		})
	}
}

// strangeEncoder has an identifier that is no JSON.
type strangeEncoder struct{}

func (strangeEncoder) Identifier() runtime.Identifier { return "strange" }

func (e strangeEncoder) Encode(object runtime.Object, w io.Writer) error {
	if cacheable, ok := object.(runtime.CacheableObject); ok {
		return cacheable.CacheEncode(e.Identifier(), e.Encode, w)
	}
	_, err := fmt.Fprintf(w, "%T", object)
	return err
}

// TestEventsAreCopied checks the identifiers of watches, which upstream does not export: k8s.io/apiserver
// pkg/endpoints/handlers/response.go. The differential test compares what watches are really sent.
func TestEventsAreCopied(t *testing.T) {
	plain := string(versioned(serializer(json.SerializerOptions{}), "lab.annex.test").Identifier())
	quoted := func(text string) string { return fmt.Sprintf("%q", text) }
	metadata := `{"name":"watch-embedded","encoder":` + quoted(plain) + `,"target":"meta.k8s.io/v1, Kind=PartialObjectMetadata"}`
	table := `{"name":"watch-embedded","encoder":` + quoted(plain) + `,"target":"meta.k8s.io/v1, Kind=Table"}`
	event := func(embedded string) string {
		return `{"name":"watch","embeddedEncoder":` + quoted(embedded) + `,"encoder":` + quoted(plain) + `,"eventType":"ADDED"}`
	}
	tests := map[string]struct {
		id   string
		want encoding
	}{
		"plain":             {event(plain), encoding{plain: true, before: `{"type":"ADDED","object":`, after: "}\n"}},
		"metadata":          {event(metadata), encoding{metadataOnly: true}},
		"embedded metadata": {metadata, encoding{metadataOnly: true}},
		"table":             {event(table), encoding{}},
		"embedded table":    {table, encoding{}},
		"pretty": {
			event(string(versioned(serializer(json.SerializerOptions{Pretty: true}), "lab.annex.test").Identifier())), encoding{},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := newEncodings(schema.GroupVersion{Group: "lab.annex.test", Version: "v1"}).of(runtime.Identifier(tc.id))
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(encoding{})); diff != "" {
				t.Errorf("encoding (-want +got):\n%s", diff)
			}
		})
	}
}

// oneWrite fails on the second write.
type oneWrite struct {
	t       *testing.T
	written []byte
}

func (w *oneWrite) Write(data []byte) (int, error) {
	if w.written != nil {
		w.t.Errorf("a second write: %q", data)
	}
	w.written = append([]byte{}, data...)
	return len(data), nil
}

// TestEventsAreWrittenAtOnce holds CacheEncode to one write, as it may be a message of a web socket.
func TestEventsAreWrittenAtOnce(t *testing.T) {
	encoder := versioned(serializer(json.SerializerOptions{}), "lab.annex.test")
	direct := &oneWrite{t: t}
	if err := encoder.Encode(decodedGadget(t), direct); err != nil {
		t.Fatal(err)
	}
	spliced := runtime.NewSpliceBuffer()
	if err := encoder.Encode(decodedGadget(t), spliced); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(direct.written), string(spliced.Bytes())); diff != "" {
		t.Errorf("spliced (-written +spliced):\n%s", diff)
	}
}

// TestBookmark makes the object of a bookmark as the Cacher does, from Objects and from decoded ones.
func TestBookmark(t *testing.T) {
	for name, initial := range map[string]bool{"a plain one": false, "one that ends the initial events": true} {
		t.Run(name, func(t *testing.T) {
			bookmarkOf := func(object runtime.Object) runtime.Object {
				if err := (storage.APIObjectVersioner{}).UpdateObject(object, 7); err != nil {
					t.Fatal(err)
				}
				if initial {
					if err := storage.AnnotateInitialEventsEndBookmark(object); err != nil {
						t.Fatal(err)
					}
				}
				return object
			}
			bookmark := bookmarkOf(gadgetKind(t).New())
			var want, got bytes.Buffer
			encoder := serializer(json.SerializerOptions{})
			if err := encoder.Encode(bookmarkOf(newGadget()), &want); err != nil {
				t.Fatal(err)
			}
			if err := encoder.Encode(bookmark.DeepCopyObject(), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), got.String()); diff != "" {
				t.Errorf("bookmark (-decoded +compact):\n%s", diff)
			}
			if ends, err := storage.HasInitialEventsEndBookmarkAnnotation(bookmark); err != nil || ends != initial {
				t.Errorf("HasInitialEventsEndBookmarkAnnotation() = %v, %v, want %v", ends, err, initial)
			}
		})
	}
}

// TestCopiesAreIndependent changes a copy as the Cacher does for the event of a deletion.
func TestCopiesAreIndependent(t *testing.T) {
	object := decodedGadget(t)
	deleted := object.DeepCopyObject()
	accessor, err := meta.Accessor(deleted)
	if err != nil {
		t.Fatal(err)
	}
	accessor.SetResourceVersion("9")
	for _, tc := range []struct {
		object  runtime.Object
		version string
	}{{object, version}, {deleted, "9"}} {
		full := tc.object.(*Object).GetObject().(*unstructured.Unstructured)
		if full.GetResourceVersion() != tc.version {
			t.Errorf("resourceVersion %q, want %q", full.GetResourceVersion(), tc.version)
		}
	}
	if got := object.GetObjectKind().GroupVersionKind().String(); got != "lab.annex.test/v1, Kind=Gadget" {
		t.Errorf("kind %q", got)
	}
	if object.GetName() != "g" || object.GetNamespace() != "n" || object.GetUID() != "u" {
		t.Errorf("metadata %q/%q %q, want n/g u", object.GetNamespace(), object.GetName(), object.GetUID())
	}
}

func TestCodecLeavesOtherTargetsAlone(t *testing.T) {
	codec := gadgetKind(t).Codec(unstructured.UnstructuredJSONScheme)
	into := &unstructured.Unstructured{}
	decoded, _, err := codec.Decode([]byte(gadgetJSON), nil, into)
	if err != nil {
		t.Fatal(err)
	}
	if decoded != runtime.Object(into) || into.GetName() != "g" {
		t.Errorf("Decode() = %v, want the target filled", decoded)
	}
	if _, _, err := codec.Decode([]byte(`{"kind":`), nil, &Object{}); err == nil {
		t.Error("Decode() of broken JSON = nil, want an error")
	}
	// The Cacher encodes an empty object to see whether the codec fits.
	if err := runtime.CheckCodec(codec, gadgetKind(t).New()); err != nil {
		t.Errorf("CheckCodec() = %v", err)
	}
	list := &List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []Object{*decodedGadget(t)}}
	copied := list.DeepCopyObject().(*List)
	copied.Items[0].SetResourceVersion("2")
	if list.Items[0].GetResourceVersion() != version {
		t.Error("a copy of a list shares its items")
	}
}
