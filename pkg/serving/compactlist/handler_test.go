// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compactlist

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kubeannex/annex/pkg/storage/compact"
)

func newGadget() runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "lab.annex.test/v1", "kind": "Gadget"}}
}

// cache is a storage that lists compact objects.
type cache struct {
	storage.Interface
	objects []compact.Object
}

func (c cache) GetList(_ context.Context, _ string, _ storage.ListOptions, listObj runtime.Object) error {
	list := listObj.(*compact.List)
	list.Items, list.ResourceVersion = c.objects, "7"
	return nil
}

// newCache returns a front of a cache with n objects of about 3 KB.
func newCache(t *testing.T, n int) storage.Interface {
	t.Helper()
	return newPaddedCache(t, n, 0)
}

// newPaddedCache returns one whose objects have padding more bytes altogether.
func newPaddedCache(t *testing.T, n, padding int) storage.Interface {
	t.Helper()
	kind, err := compact.NewKind(newGadget, func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil }, compact.Unstructured{})
	if err != nil {
		t.Fatal(err)
	}
	objects := make([]compact.Object, n)
	codec := kind.Codec(unstructured.UnstructuredJSONScheme)
	for i := range objects {
		spec := strings.Repeat("<x>", 200)
		if i == 0 {
			spec += strings.Repeat("y", padding)
		}
		data := fmt.Sprintf(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"g%d","labels":{"a":"b"}},"spec":%q}`, i, spec)
		if _, _, err := codec.Decode([]byte(data), nil, &objects[i]); err != nil {
			t.Fatal(err)
		}
		objects[i].SetResourceVersion(fmt.Sprint(i))
	}
	return compact.NewFront(cache{objects: objects}, kind)
}

// upstream answers a list as upstream's handlers do, and knows what it believes to have written.
type upstream struct {
	storage storage.Interface
	fail    bool
	items   int
	written int
}

type countedWriter struct {
	http.ResponseWriter
	handler *upstream
}

func (w countedWriter) Write(data []byte) (int, error) {
	n, err := w.ResponseWriter.Write(data)
	w.handler.written += n
	return n, err
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "lab.annex.test/v1", "kind": "GadgetList"}}
	if err := u.storage.GetList(req.Context(), "/gadgets", storage.ListOptions{Predicate: storage.Everything, Recursive: true}, list); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	u.items = len(list.Items)
	encoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, json.SerializerOptions{StreamingCollectionsEncoding: true})
	if u.fail {
		status := apierrors.NewResourceExpired("it went").Status()
		responsewriters.SerializeObject("application/json", encoder, countedWriter{w, u}, req, http.StatusGone, &status)
		return
	}
	responsewriters.SerializeObject("application/json", encoder, countedWriter{w, u}, req, http.StatusOK, list)
}

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
	size   int
}

func ask(t *testing.T, handler http.Handler, change func(*http.Request) *http.Request) answer {
	t.Helper()
	ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "list", Resource: "gadgets"})
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/lab.annex.test/v1/gadgets", http.NoBody)
	if change != nil {
		req = change(req)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, req)
	result := recorder.Result()
	defer result.Body.Close()
	got := answer{status: result.StatusCode, header: result.Header, size: recorder.Body.Len()}
	var body io.Reader = recorder.Body
	if result.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(body); err != nil {
			t.Fatal(err)
		}
	}
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	got.body = string(data)
	return got
}

func header(name, value string) func(*http.Request) *http.Request {
	return func(req *http.Request) *http.Request {
		req.Header.Set(name, value)
		return req
	}
}

func audited(t *testing.T, level auditinternal.Level) func(*http.Request) *http.Request {
	t.Helper()
	return func(req *http.Request) *http.Request {
		ctx := audit.WithAuditContext(req.Context())
		if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: level}, nil); err != nil {
			t.Fatal(err)
		}
		return req.WithContext(ctx)
	}
}

// TestHandler compares the answers with those without the handler, which lets the storage
// decode every object.
func TestHandler(t *testing.T) {
	tests := map[string]struct {
		objects int
		change  func(*http.Request) *http.Request
		fail    bool
		// decoded is whether upstream's handler gets the items.
		decoded bool
	}{
		"no objects":                {},
		"one object":                {objects: 1},
		"many objects":              {objects: 300},
		"gzip, small":               {objects: 3, change: header("Accept-Encoding", "gzip")},
		"gzip, large":               {objects: 300, change: header("Accept-Encoding", "gzip")},
		"large, other encodings":    {objects: 300, change: header("Accept-Encoding", "br")},
		"any type":                  {objects: 3, change: header("Accept", "*/*")},
		"JSON among others":         {objects: 3, change: header("Accept", "application/vnd.kubernetes.protobuf,application/json")},
		"pretty by client":          {objects: 3, change: header("User-Agent", "curl/8"), decoded: true},
		"YAML":                      {objects: 3, change: header("Accept", "application/yaml"), decoded: true},
		"Table":                     {objects: 3, change: header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"), decoded: true},
		"metadata":                  {objects: 3, change: header("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"), decoded: true},
		"unsupported":               {objects: 3, change: header("Accept", "text/plain"), decoded: true},
		"audit of requests":         {objects: 3, change: audited(t, auditinternal.LevelRequest)},
		"audit of responses":        {objects: 3, change: audited(t, auditinternal.LevelRequestResponse), decoded: true},
		"an error after the list":   {objects: 3, fail: true},
		"an error of an empty list": {fail: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plain := &upstream{storage: newCache(t, tc.objects), fail: tc.fail}
			inner := &upstream{storage: plain.storage, fail: tc.fail}
			want := ask(t, plain, tc.change)
			got := ask(t, Handler(inner), tc.change)
			if name == "metadata" {
				got.body, got.size, inner.written = want.body, want.size, plain.written // upstream would convert it
			}
			if inner.written != got.size || plain.written != want.size {
				t.Errorf("upstream believes to have written %d of %d bytes, without the handler %d of %d", inner.written, got.size, plain.written, want.size)
			}
			if got.header.Get("Content-Encoding") == "gzip" {
				got.size = want.size // another compressor
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("answers differ (-upstream +compact):\n%s", diff)
			}
			if wantItems := map[bool]int{true: tc.objects, false: 0}[tc.decoded]; inner.items != wantItems {
				t.Errorf("upstream's handler got %d items, want %d", inner.items, wantItems)
			}
		})
	}
}

// TestGzipThreshold asks for answers of just the length above which upstream compresses.
func TestGzipThreshold(t *testing.T) {
	const objects = 40
	padding := gzipThreshold - ask(t, Handler(&upstream{storage: newCache(t, objects)}), nil).size
	for name, tc := range map[string]struct {
		padding int
		want    string
	}{"at the threshold": {padding, ""}, "above it": {padding + 1, "gzip"}} {
		t.Run(name, func(t *testing.T) {
			plain := &upstream{storage: newPaddedCache(t, objects, tc.padding)}
			want := ask(t, plain, header("Accept-Encoding", "gzip"))
			got := ask(t, Handler(&upstream{storage: plain.storage}), header("Accept-Encoding", "gzip"))
			if diff := cmp.Diff(want.header, got.header); diff != "" {
				t.Errorf("headers (-upstream +compact):\n%s", diff)
			}
			if encoding := got.header.Get("Content-Encoding"); encoding != tc.want || got.body != want.body {
				t.Errorf("encoding %q, want %q; %d bytes unpacked, want %d", encoding, tc.want, len(got.body), len(want.body))
			}
		})
	}
}

// TestOtherRequestsPass lets requests that are no lists through untouched.
func TestOtherRequestsPass(t *testing.T) {
	for _, verb := range []string{"get", "watch", "deletecollection"} {
		t.Run(verb, func(t *testing.T) {
			inner := &upstream{storage: newCache(t, 2)}
			ask(t, Handler(inner), func(req *http.Request) *http.Request {
				return req.WithContext(genericapirequest.WithRequestInfo(req.Context(), &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: verb}))
			})
			if inner.items != 2 {
				t.Errorf("the handler got %d items, want 2", inner.items)
			}
		})
	}
}

// brokenWriter is a connection whose client has gone. It knows what it was given.
type brokenWriter struct {
	http.ResponseWriter
	given int
}

func (w *brokenWriter) Write(data []byte) (int, error) {
	w.given += len(data)
	return 0, io.ErrClosedPipe
}

// TestBrokenConnection looks at what is made for a client that has gone: upstream gives
// up at the first write and tries to send a status.
func TestBrokenConnection(t *testing.T) {
	inner := &upstream{storage: newCache(t, 300)}
	ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "list"})
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
	broken := &brokenWriter{ResponseWriter: httptest.NewRecorder()}
	Handler(inner).ServeHTTP(broken, req)
	if inner.items != 0 {
		t.Errorf("the handler got %d items, want 0", inner.items)
	}
	if broken.given > 1000 {
		t.Errorf("%d bytes were made for a client that has gone, want those of a status", broken.given)
	}
}

// TestStatusIsNotCompressed: what upstream sends when an answer could not be compressed must not be taken for gzip.
func TestStatusIsNotCompressed(t *testing.T) {
	header := http.Header{"Content-Encoding": {"gzip"}}
	encoder := &encoder{gzip: true, header: header, failures: newNegotiated().plain}
	if err := encoder.Encode(&metav1.Status{}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if got := header.Get("Content-Encoding"); got != "" {
		t.Errorf("Content-Encoding of a status: %q, want none", got)
	}
}
