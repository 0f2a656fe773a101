// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubeannex/annex/pkg/digest"
)

const (
	testPrefix = "/lab.test/gadgets"
	good       = `{"type":"ADDED","object":{"metadata":{"resourceVersion":"5","namespace":"t","name":"a","uid":"u"},"kind":"Gadget","apiVersion":"lab.test/v1","x":1.0}}`
	goodStored = `{"apiVersion":"lab.test/v1","kind":"Gadget","metadata":{"name":"a","namespace":"t","uid":"u"},"x":1}`
)

func gadgets() Target {
	return Target{
		Resource:   schema.GroupResource{Group: "lab.test", Resource: "gadgets"},
		Kind:       schema.GroupVersionKind{Group: "lab.test", Version: "v1", Kind: "Gadget"},
		Namespaced: true,
	}
}

func planets() Target {
	target := gadgets()
	target.Namespaced = false
	return target
}

// summary is what a test looks at of an item.
type summary struct {
	Index              int64
	Name, Key, Content string
	IsNew              bool
}

// readAll reads a stream to its end or its first error.
func readAll(t *testing.T, stream io.Reader, target Target) ([]summary, *streamReader, error) {
	reader := newStreamReader(stream, target, testPrefix)
	var items []summary
	for {
		it, err := reader.next(t.Context())
		switch {
		case errors.Is(err, io.EOF):
			return items, reader, nil
		case err != nil:
			return items, reader, err
		case it != nil:
			items = append(items, summary{it.index, it.name, it.key, string(it.content), it.isNew})
		}
	}
}

func TestStream(t *testing.T) {
	tests := map[string]struct {
		stream string
		target Target
		want   []summary
	}{
		"nothing":     {target: gadgets()},
		"only spaces": {stream: " \n ", target: gadgets()},
		"an object loses its resource version and nothing else": {
			stream: good, target: gadgets(),
			want: []summary{{1, "t/a", testPrefix + "/t/a", goodStored, true}},
		},
		"a change, a bookmark and a deletion": {
			stream: strings.Replace(good, "ADDED", "MODIFIED", 1) + `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}` + "\n" +
				`{"type":"DELETED","object":{"metadata":{"namespace":"t","name":"b"}}}`,
			target: gadgets(),
			want: []summary{
				{1, "t/a", testPrefix + "/t/a", goodStored, false},
				{3, "t/b", testPrefix + "/t/b", "", false},
			},
		},
		"an object of the cluster": {
			stream: `{"type":"ADDED","object":{"apiVersion":"lab.test/v1","kind":"Gadget","metadata":{"name":"a","uid":"u"}}}`,
			target: planets(),
			want: []summary{{1, "a", testPrefix + "/a",
				`{"apiVersion":"lab.test/v1","kind":"Gadget","metadata":{"name":"a","uid":"u"}}`, true}},
		},
		"fields that the server makes": {
			stream: `{"type":"ADDED","object":{"apiVersion":"lab.test/v1","kind":"Gadget","metadata":{"creationTimestamp":"2020-01-02T03:04:05Z",` +
				`"deletionGracePeriodSeconds":0,"deletionTimestamp":"2021-01-02T03:04:05Z","finalizers":["a/b"],"generation":9,` +
				`"managedFields":[{"manager":"m"}],"name":"a","ownerReferences":[{"uid":"o"}],"uid":"u"},"status":{"n":null,"s":"<&>"}}}`,
			target: planets(),
			want: []summary{{1, "a", testPrefix + "/a",
				`{"apiVersion":"lab.test/v1","kind":"Gadget","metadata":{"creationTimestamp":"2020-01-02T03:04:05Z",` +
					`"deletionGracePeriodSeconds":0,"deletionTimestamp":"2021-01-02T03:04:05Z","finalizers":["a/b"],"generation":9,` +
					`"managedFields":[{"manager":"m"}],"name":"a","ownerReferences":[{"uid":"o"}],"uid":"u"},"status":{"n":null,"s":"\u003c\u0026\u003e"}}`, true}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			// One byte at a time finds what depends on how the stream is cut.
			got, reader, err := readAll(t, iotest.OneByteReader(strings.NewReader(tc.stream)), tc.target)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
			var total digest.Set
			for _, it := range tc.want {
				if it.Content != "" {
					total.Add(digest.OfBytes([]byte(it.Content)))
				}
			}
			if diff := cmp.Diff(total.String(), reader.total.String()); diff != "" {
				t.Errorf("digest (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStreamIsRefused(t *testing.T) {
	with := func(object string) string { return good + `{"type":"ADDED","object":` + object + `}` }
	tests := map[string]struct {
		stream     string
		target     Target
		wantReason metav1.StatusReason
		// want are parts of the message.
		want []string
	}{
		"an unknown type":            {good + `{"type":"ERROR","object":{}}`, gadgets(), metav1.StatusReasonBadRequest, []string{"event 2, which follows t/a", `"ERROR"`}},
		"no JSON":                    {"hello", gadgets(), metav1.StatusReasonBadRequest, []string{"event 1:"}},
		"broken JSON":                {with(`{"a":}`), gadgets(), metav1.StatusReasonBadRequest, []string{"event 2, which follows t/a"}},
		"a list":                     {with(`[]`), gadgets(), metav1.StatusReasonBadRequest, []string{"event 2", "no JSON object"}},
		"no object":                  {`{"type":"ADDED"}`, gadgets(), metav1.StatusReasonBadRequest, []string{"event 1", "no JSON object"}},
		"a null":                     {with("null"), gadgets(), metav1.StatusReasonBadRequest, []string{"event 2", "no JSON object"}},
		"a stream that is cut":       {good + good[:50], gadgets(), metav1.StatusReasonBadRequest, []string{"event 2, which follows t/a", "ends in the middle"}},
		"an object without name":     {with(`{"metadata":{"namespace":"t","uid":"u"},"kind":"Gadget","apiVersion":"lab.test/v1"}`), gadgets(), metav1.StatusReasonInvalid, []string{"event 2, which follows t/a", "metadata.name"}},
		"an object without UID":      {with(`{"metadata":{"namespace":"t","name":"b"},"kind":"Gadget","apiVersion":"lab.test/v1"}`), gadgets(), metav1.StatusReasonInvalid, []string{"t/b", "metadata.uid"}},
		"another version":            {with(`{"metadata":{"namespace":"t","name":"b","uid":"u"},"kind":"Gadget","apiVersion":"lab.test/v2"}`), gadgets(), metav1.StatusReasonInvalid, []string{"t/b", "apiVersion", "lab.test/v2", "lab.test/v1"}},
		"another kind":               {with(`{"metadata":{"namespace":"t","name":"b","uid":"u"},"kind":"Widget","apiVersion":"lab.test/v1"}`), gadgets(), metav1.StatusReasonInvalid, []string{"t/b", "kind", "Widget"}},
		"no namespace":               {with(`{"metadata":{"name":"b","uid":"u"},"kind":"Gadget","apiVersion":"lab.test/v1"}`), gadgets(), metav1.StatusReasonInvalid, []string{"b", "metadata.namespace", "namespaced"}},
		"a namespace too many":       {good, planets(), metav1.StatusReasonInvalid, []string{"t/a", "metadata.namespace", "cluster-scoped"}},
		"a name that is a path":      {with(`{"metadata":{"namespace":"t","name":"b/../c","uid":"u"},"kind":"Gadget","apiVersion":"lab.test/v1"}`), gadgets(), metav1.StatusReasonInvalid, []string{"t/b/../c", "metadata.name"}},
		"a namespace that is a path": {with(`{"metadata":{"namespace":"..","name":"b","uid":"u"},"kind":"Gadget","apiVersion":"lab.test/v1"}`), gadgets(), metav1.StatusReasonInvalid, []string{"../b"}},
		"metadata of another shape":  {with(`{"metadata":[],"kind":"Gadget","apiVersion":"lab.test/v1"}`), gadgets(), metav1.StatusReasonInvalid, []string{"event 2", "metadata.name"}},
		"a deletion without name":    {`{"type":"DELETED","object":{"metadata":{"namespace":"t"}}}`, gadgets(), metav1.StatusReasonInvalid, []string{"event 1", "metadata.name"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := readAll(t, strings.NewReader(tc.stream), tc.target)
			if got := apierrors.ReasonForError(err); got != tc.wantReason {
				t.Fatalf("reason: got %q of %v, want %q", got, err, tc.wantReason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// large is an event of an object of some size.
func large(name string, size int) string {
	return fmt.Sprintf(`{"type":"ADDED","object":{"apiVersion":"lab.test/v1","kind":"Gadget","metadata":{"name":%q,"namespace":"t","uid":"u"},"x":%q}}`,
		name, strings.Repeat("x", size))
}

func TestStreamTooLarge(t *testing.T) {
	tests := map[string]struct {
		events []string
		want   string
	}{
		"an object": {[]string{good, large("big", MaxObjectBytes)}, "t/big"},
		"a request": {
			[]string{large("b1", MaxObjectBytes-1000), large("b2", MaxObjectBytes-1000), large("b3", MaxObjectBytes-1000), large("b4", MaxObjectBytes-1000),
				large("b5", MaxObjectBytes-1000), large("b6", MaxObjectBytes-1000), large("b7", MaxObjectBytes-1000), large("b8", MaxObjectBytes-1000), large("b9", 10000)},
			"event 9, which follows t/b8",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			items, _, err := readAll(t, strings.NewReader(strings.Join(tc.events, "\n")), gadgets())
			if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want one about %s", err, tc.want)
			}
			if len(items) != len(tc.events)-1 {
				t.Errorf("got %d items before it, want %d", len(items), len(tc.events)-1)
			}
		})
	}
}

func TestStreamThatFails(t *testing.T) {
	_, _, err := readAll(t, io.MultiReader(strings.NewReader(good), iotest.ErrReader(errors.New("connection reset"))), gadgets())
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "event 2, which follows t/a") || !strings.Contains(err.Error(), "connection reset") {
		t.Errorf("got %v", err)
	}
}

// FuzzStream checks that no stream makes the reader fail in another way than by
// an API status, and that what it lets through can be stored and read back.
func FuzzStream(f *testing.F) {
	f.Add([]byte(good), true)
	f.Add([]byte(good+"\n"+strings.Replace(good, "ADDED", "DELETED", 1)), true)
	f.Add([]byte(`{"type":"BOOKMARK","object":{}}`), false)
	f.Add([]byte(`{"type":"ADDED","object":{"apiVersion":"lab.test/v1","kind":"Gadget","metadata":{"name":"a","uid":"u","resourceVersion":1}}}`), false)
	f.Add([]byte(good[:40]), true)
	f.Add([]byte(`{"type":"ADDED","object":{"metadata":{"name":"\ud800"}}}`), false)
	f.Fuzz(func(t *testing.T, content []byte, namespaced bool) {
		target := gadgets()
		target.Namespaced = namespaced
		items, reader, err := readAll(t, strings.NewReader(string(content)), target)
		if err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			t.Errorf("no API status: %v", err)
		}
		var total digest.Set
		for _, it := range items {
			if !strings.HasPrefix(it.Key, testPrefix+"/") || strings.Count(it.Key, "/") != strings.Count(testPrefix+"/"+it.Name, "/") {
				t.Errorf("key %q of %q", it.Key, it.Name)
			}
			if it.Content == "" {
				continue
			}
			var object map[string]any
			if err := utiljson.Unmarshal([]byte(it.Content), &object); err != nil {
				t.Fatalf("stored %q: %v", it.Content, err)
			}
			entry, err := digest.OfObject(object)
			if err != nil {
				t.Fatal(err)
			}
			if entry != digest.OfBytes([]byte(it.Content)) {
				t.Errorf("%q is not canonical", it.Content)
			}
			total.Add(entry)
		}
		if err == nil && total.String() != reader.total.String() {
			t.Error("the digest is not that of the items")
		}
	})
}
