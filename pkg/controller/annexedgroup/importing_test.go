// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/cluster"
	"github.com/kubeannex/annex/pkg/digest"
)

// importServer answers imports as annex does and remembers their events.
type importServer struct {
	// events are "TYPE name/uid", requests how many imports came.
	events   []string
	requests int
	// broken makes it answer with the digest of nothing, refuse with status 422.
	broken, refuse bool
}

func (s *importServer) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	s.requests++
	response.Header().Set("Content-Type", "application/json")
	if s.refuse {
		response.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(response, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid","message":"ns/a is broken"}`)
		return
	}
	var set digest.Set
	for decoder := json.NewDecoder(request.Body); ; {
		var event struct {
			Type   string
			Object map[string]any
		}
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		object := &unstructured.Unstructured{Object: event.Object}
		s.events = append(s.events, fmt.Sprintf("%s %s/%s", event.Type, object.GetName(), object.GetUID()))
		if entry, err := digest.OfObject(event.Object); err == nil && event.Type != "DELETED" && !s.broken {
			set.Add(entry)
		}
	}
	if err := json.NewEncoder(response).Encode(kubeannexv1alpha1.ImportResult{Digest: set.String()}); err != nil {
		return
	}
}

// startImports returns the server and an importer of gadgets into it.
func startImports(t *testing.T) (*importServer, *importer) {
	t.Helper()
	server := &importServer{}
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	annex, err := cluster.NewServer("annex", &rest.Config{Host: listener.URL})
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Connections: cluster.Connections{Annex: annex}}
	gadgets := resource{plural: "gadgets", kind: "Gadget", storage: schema.GroupVersionResource{Group: "lab.annex.test", Version: "v1", Resource: "gadgets"}}
	return server, r.newImporter("lab.annex.test", gadgets, newLedger())
}

func gadget(name, uid, version string, size int) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"text": strings.Repeat("x", size)}}}
	object.SetAPIVersion("lab.annex.test/v1")
	object.SetKind("Gadget")
	object.SetNamespace("ns")
	object.SetName(name)
	object.SetUID(types.UID(uid))
	object.SetResourceVersion(version)
	return object
}

func putAll(t *testing.T, i *importer, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		if err := i.put(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImportTellsChanges(t *testing.T) {
	server, i := startImports(t)
	putAll(t, i, gadget("a", "1", "10", 1), gadget("b", "2", "11", 1), gadget("c", "3", "12", 1))
	if err := i.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	// One is changed, one has a successor of the same name, one is gone.
	putAll(t, i, gadget("a", "1", "20", 2), gadget("b", "9", "21", 1))
	if err := i.remove(t.Context(), "ns/c"); err != nil {
		t.Fatal(err)
	}
	if err := i.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"ADDED a/1", "ADDED b/2", "ADDED c/3", "MODIFIED a/1", "DELETED b/2", "ADDED b/9", "DELETED c/3"}
	if diff := cmp.Diff(want, server.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var content digest.Set
	for _, object := range []*unstructured.Unstructured{gadget("b", "9", "", 1), gadget("a", "1", "", 2)} {
		entry, err := digest.OfObject(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		content.Add(entry)
	}
	if i.ledger.content.String() != content.String() || i.ledger.content.Objects != 2 {
		t.Errorf("the ledger knows %d objects with digest %s, want 2 with %s", i.ledger.content.Objects, i.ledger.content, content)
	}
}

func TestImportsAreBounded(t *testing.T) {
	cases := map[string]struct {
		objects, size int
		want          int
	}{
		"nothing":            {0, 0, 0},
		"many small objects": {2*maxBatchObjects + 1, 1, 3},
		"few large objects":  {5, maxBatchBytes / 3, 3},
		"one that is larger": {1, maxBatchBytes + 1, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, i := startImports(t)
			for n := range tc.objects {
				putAll(t, i, gadget(fmt.Sprintf("g-%d", n), fmt.Sprint(n), "1", tc.size))
			}
			if err := i.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if server.requests != tc.want || len(server.events) != tc.objects {
				t.Errorf("%d imports with %d objects, want %d with %d", server.requests, len(server.events), tc.want, tc.objects)
			}
		})
	}
}

// TestFailedImportTeachesNothing expects that objects are imported again after a failure.
func TestFailedImportTeachesNothing(t *testing.T) {
	cases := map[string]struct {
		server importServer
		want   string
	}{
		"annex refuses an object":     {importServer{refuse: true}, "importing gadgets into annex: ns/a is broken"},
		"annex stores something else": {importServer{broken: true}, "annex stored something else than the 1 gadgets that were imported"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, i := startImports(t)
			*server = tc.server
			putAll(t, i, gadget("a", "1", "10", 1))
			err := i.flush(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if len(i.ledger.entries) != 0 || i.ledger.content.Objects != 0 {
				t.Errorf("the ledger knows %d objects, want none", len(i.ledger.entries))
			}
		})
	}
}
