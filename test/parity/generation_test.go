// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"net/http"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// edit sends an object back after a change.
func (s *session) edit(name, path string, change func(object *unstructured.Unstructured)) *response {
	s.t.Helper()
	object := s.peek(http.MethodGet, path).want(http.StatusOK).object()
	change(object)
	return s.send(name, path, object)
}

func (s *session) send(name, path string, object *unstructured.Unstructured) *response {
	s.t.Helper()
	data, err := object.MarshalJSON()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(name, http.MethodPut, path, string(data))
}

// set puts a value at a path of an object.
func (s *session) set(object *unstructured.Unstructured, value any, path ...string) {
	s.t.Helper()
	if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
		s.t.Fatal(err)
	}
}

// TestGenerationFollowsSpec reproduces kubernetes/kubernetes 58778, 63385 and 69059: the generation
// moves with the desired state and with nothing else.
func TestGenerationFollowsSpec(t *testing.T) {
	compare(t, func(s *session) {
		path := s.gadgets() + "/g"
		s.do("create with status and generation", http.MethodPost, s.gadgets(),
			`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"g","generation":7},"spec":{"size":1},"status":{"size":9}}`).
			want(http.StatusCreated).wantField(1, "metadata", "generation").wantField(nil, "status")
		start := s.now()

		s.do("patch a label", http.MethodPatch, path, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch).
			want(http.StatusOK).wantField(1, "metadata", "generation")
		s.do("patch spec", http.MethodPatch, path, `{"spec":{"size":2}}`, "Content-Type", mergePatch).
			want(http.StatusOK).wantField(2, "metadata", "generation")
		s.edit("PUT status at the main resource", path, func(object *unstructured.Unstructured) {
			s.set(object, int64(5), "status", "size")
		}).want(http.StatusOK).wantField(2, "metadata", "generation").wantField(nil, "status")
		status := s.edit("PUT all at the status", path+"/status", func(object *unstructured.Unstructured) {
			s.set(object, int64(5), "status", "size")
			s.set(object, int64(50), "spec", "size")
			object.SetLabels(map[string]string{"a": "c"})
			object.SetFinalizers([]string{"lab.annex.test/keep"})
		}).want(http.StatusOK)
		status.wantField(2, "metadata", "generation").wantField(5, "status", "size").wantField(2, "spec", "size").
			wantField("b", "metadata", "labels", "a").wantField(nil, "metadata", "finalizers")
		same := s.edit("PUT the same", path, func(*unstructured.Unstructured) {}).want(http.StatusOK)
		if same.version() != status.version() {
			s.t.Errorf("a PUT of the same object moved the resource version from %s to %s", status.version(), same.version())
		}
		s.edit("PUT a generation", path, func(object *unstructured.Unstructured) { object.SetGeneration(40) }).
			want(http.StatusOK).wantField(2, "metadata", "generation")
		s.do("patch a generation", http.MethodPatch, path, `{"metadata":{"generation":40}}`, "Content-Type", mergePatch).
			want(http.StatusOK).wantField(2, "metadata", "generation")
		s.do("patch generation and spec", http.MethodPatch, path, `{"metadata":{"generation":40},"spec":{"size":3}}`, "Content-Type", mergePatch).
			want(http.StatusOK).wantField(3, "metadata", "generation")
		s.do("patch status at the status", http.MethodPatch, path+"/status", `{"spec":{"size":9},"status":{"size":6}}`, "Content-Type", mergePatch).
			want(http.StatusOK).wantField(3, "metadata", "generation").wantField(3, "spec", "size").wantField(6, "status", "size")
		s.do("a new finalizer", http.MethodPatch, path, `{"metadata":{"finalizers":["lab.annex.test/keep"]}}`, "Content-Type", mergePatch).
			want(http.StatusOK).wantField(3, "metadata", "generation")
		s.do("delete", http.MethodDelete, path, "").want(http.StatusOK).wantField(4, "metadata", "generation")
		s.do("let it go", http.MethodPatch, path, `{"metadata":{"finalizers":null}}`, "Content-Type", mergePatch).want(http.StatusOK)
		s.do("gone", http.MethodGet, path, "").want(http.StatusNotFound)

		// One event per change: what changed nothing makes none.
		s.wantEvents("events of the gadget", start, "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED")
	})
}

// TestGenerationWithoutSubresources reproduces kubernetes/kubernetes 58778, 63385 and 69059 for a
// kind without status: every field outside metadata counts as desired state.
func TestGenerationWithoutSubresources(t *testing.T) {
	compare(t, func(s *session) {
		planets := fixturePath + "/planets"
		path := planets + "/earth"
		patch := func(name, body string, generation int) *response {
			return s.do(name, http.MethodPatch, path, body, "Content-Type", mergePatch).
				want(http.StatusOK).wantField(generation, "metadata", "generation")
		}
		s.do("create", http.MethodPost, planets, object("Planet", "earth", `{"moons":1}`)).want(http.StatusCreated)
		patch("annotation", `{"metadata":{"annotations":{"a":"b"}}}`, 1)
		patch("spec", `{"spec":{"moons":2}}`, 2)
		patch("a field deep inside", `{"spec":{"a":{"b":[{"c":1.5}]}}}`, 3)
		last := patch("remove a field", `{"spec":{"moons":null}}`, 4)
		same := patch("nothing", `{}`, 4)
		if same.version() != last.version() {
			s.t.Errorf("an empty patch moved the resource version from %s to %s", last.version(), same.version())
		}
		patch("a field that is pruned", `{"extra":1}`, 4)
		s.do("delete", http.MethodDelete, path, "").want(http.StatusOK)
	})
}

// wantEvents demands the types of the events after a resource version.
func (s *session) wantEvents(name, version string, types ...string) {
	s.t.Helper()
	events := s.eventsSince(name, version)
	got := make([]string, 0, len(events))
	for _, next := range events {
		got = append(got, next.Type)
	}
	if !slices.Equal(got, types) {
		s.t.Errorf("%s: got %v, want %v", name, got, types)
	}
}
