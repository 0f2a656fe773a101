// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apiserver/pkg/storage"
)

func testCodec() rawCodec {
	return rawCodec{stored: cbor.NewSerializer(unstructuredscheme.NewUnstructuredCreator(), unstructuredscheme.NewUnstructuredObjectTyper())}
}

func TestCodec(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "lab.test/v1", "kind": "Gadget", "x": int64(1), "text": "<"}}
	var asCBOR, asJSON bytes.Buffer
	if err := testCodec().stored.(runtime.Encoder).Encode(object, &asCBOR); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.UnstructuredJSONScheme.Encode(object, &asJSON); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"JSON": asJSON.Bytes(), "CBOR": asCBOR.Bytes()} {
		t.Run(name, func(t *testing.T) {
			raw := &rawObject{}
			if _, _, err := testCodec().Decode(data, nil, raw); err != nil {
				t.Fatal(err)
			}
			if !isCanonical(raw.content) {
				t.Errorf("not canonical: %s", raw.content)
			}
			var encoded bytes.Buffer
			if err := testCodec().Encode(raw, &encoded); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(asJSON.String(), encoded.String()); diff != "" {
				t.Errorf("encoded again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCodecRefusesOtherObjects(t *testing.T) {
	object := &unstructured.Unstructured{}
	if err := testCodec().Encode(object, &bytes.Buffer{}); err == nil {
		t.Error("it encodes an object of another type")
	}
	if _, _, err := testCodec().Decode([]byte("{}"), nil, object); err == nil {
		t.Error("it decodes into an object of another type")
	}
	if _, _, err := testCodec().Decode([]byte("garbage"), nil, &rawObject{}); err == nil {
		t.Error("it decodes garbage")
	}
}

func TestStorageError(t *testing.T) {
	resource := schema.GroupResource{Group: "lab.test", Resource: "gadgets"}
	tests := map[string]struct {
		err         error
		wantCode    int32
		wantMessage string
	}{
		"a status": {apierrors.NewBadRequest("as it is"), http.StatusBadRequest, "as it is"},
		"a full etcd": {rpctypes.ErrNoSpace, http.StatusInsufficientStorage,
			"gadgets.lab.test t/a: etcd is full: raise its quota or compact and defragment it, then run etcdctl alarm disarm"},
		"too large": {rpctypes.ErrRequestTooLarge, http.StatusRequestEntityTooLarge,
			"Request entity too large: gadgets.lab.test t/a: it is larger than etcd takes: raise its --max-request-bytes, or --embedded-etcd-max-request-bytes of annex-apiserver"},
		"too large for the client": {status.Error(codes.ResourceExhausted, "trying to send message larger than max (9 vs. 8)"), http.StatusRequestEntityTooLarge,
			"Request entity too large: gadgets.lab.test t/a: it is larger than etcd takes: raise its --max-request-bytes, or --embedded-etcd-max-request-bytes of annex-apiserver"},
		"no leader":   {rpctypes.ErrNoLeader, http.StatusGatewayTimeout, "Timeout: gadgets.lab.test t/a: etcdserver: no leader"},
		"unreachable": {storage.NewUnreachableError("key", 0), http.StatusGatewayTimeout, ""},
		"anything":    {errors.New("what"), http.StatusInternalServerError, "Internal error occurred: gadgets.lab.test t/a: what"},
		"wrapped":     {fmt.Errorf("deep: %w", rpctypes.ErrNoSpace), http.StatusInsufficientStorage, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got *apierrors.StatusError
			if err := storageError(tc.err, resource, "t/a"); !errors.As(err, &got) {
				t.Fatalf("got %v, no status", err)
			}
			if got.ErrStatus.Code != tc.wantCode {
				t.Errorf("code: got %d, want %d", got.ErrStatus.Code, tc.wantCode)
			}
			if tc.wantMessage != "" && got.ErrStatus.Message != tc.wantMessage {
				t.Errorf("message: got %q, want %q", got.ErrStatus.Message, tc.wantMessage)
			}
		})
	}
}

func TestCopiesAreIndependent(t *testing.T) {
	list := &rawList{Items: []rawObject{{content: []byte("{}")}}}
	list.Items[0].ResourceVersion = "1"
	copied := list.DeepCopyObject().(*rawList)
	copied.Items[0].ResourceVersion = "2"
	if got := list.Items[0].ResourceVersion; got != "1" {
		t.Errorf("the original has resource version %s, want 1", got)
	}
}
