// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"net/http"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestScale reproduces kubernetes/kubernetes 80572: the scale subresource keeps the caller's
// resource version and the optimistic lock of the object.
func TestScale(t *testing.T) {
	compare(t, func(s *session) {
		path := s.gadgets() + "/g"
		scale := path + "/scale"
		s.do("create without size", http.MethodPost, s.gadgets(), gadget("g", `{"color":"red"}`)).want(http.StatusCreated)
		s.do("GET without size", http.MethodGet, scale, "").wantStatus(http.StatusInternalServerError, metav1.StatusReasonInternalError, ".spec.size")
		s.do("PATCH without size", http.MethodPatch, scale, `{"spec":{"replicas":1}}`, "Content-Type", mergePatch)
		s.do("set a size", http.MethodPatch, path, `{"spec":{"size":1}}`, "Content-Type", mergePatch).want(http.StatusOK)
		first := s.do("GET", http.MethodGet, scale, "").want(http.StatusOK)
		first.wantField("autoscaling/v1", "apiVersion").wantField("Scale", "kind").wantField(1, "spec", "replicas").wantField(nil, "status", "selector")

		s.do("status of the scaled", http.MethodPatch, path+"/status", `{"status":{"size":1,"sel":"app=x"}}`, "Content-Type", mergePatch).want(http.StatusOK)
		current := s.do("GET with selector", http.MethodGet, scale, "").want(http.StatusOK)
		current.wantField("app=x", "status", "selector").wantField(1, "status", "replicas")

		s.send("PUT a stale version", scale, s.replicas(first, 5)).wantStatus(http.StatusConflict, metav1.StatusReasonConflict)
		before, _, err := unstructured.NestedInt64(s.peek(http.MethodGet, path).object().Object, "metadata", "generation")
		if err != nil {
			s.t.Fatal(err)
		}
		s.send("PUT", scale, s.replicas(current, 3)).want(http.StatusOK).wantField(3, "spec", "replicas")
		s.do("GET the object", http.MethodGet, path, "").wantField(3, "spec", "size").wantField(before+1, "metadata", "generation")
		without := s.replicas(current, 4)
		without.SetResourceVersion("")
		s.send("PUT without version", scale, without).want(http.StatusOK).wantField(4, "spec", "replicas")
		s.send("PUT below zero", scale, s.replicas(s.peek(http.MethodGet, scale), -1)).wantStatus(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, ".spec.size: Invalid value: -1")
		without.SetName("other")
		s.send("PUT another name", scale, without).wantStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest)
		s.do("PUT of another kind", http.MethodPut, scale, gadget("g", `{}`))
		s.do("PATCH of a wrong type", http.MethodPatch, scale, `{"spec":{"replicas":"many"}}`, "Content-Type", mergePatch)
		s.do("dry run", http.MethodPatch, scale+"?dryRun=All", `{"spec":{"replicas":50}}`, "Content-Type", mergePatch).want(http.StatusOK).wantField(50, "spec", "replicas")
		s.do("after the dry run", http.MethodGet, scale, "").want(http.StatusOK).wantField(4, "spec", "replicas")
		s.do("GET as YAML", http.MethodGet, scale, "", "Accept", "application/yaml").want(http.StatusOK)
		s.do("GET as protobuf", http.MethodGet, scale, "", "Accept", "application/vnd.kubernetes.protobuf").want(http.StatusNotAcceptable)
		s.do("of nothing", http.MethodGet, s.gadgets()+"/absent/scale", "").wantStatus(http.StatusNotFound, metav1.StatusReasonNotFound)
		s.kubectl("kubectl scale", "", "scale", "gadgets.lab.annex.test/g", "--replicas=7")
		s.kubectl("kubectl scale from a wrong size", "", "scale", "gadgets.lab.annex.test/g", "--replicas=8", "--current-replicas=1")
		s.do("scaled by kubectl", http.MethodGet, path, "").want(http.StatusOK).wantField(7, "spec", "size")
	})
}

// replicas is the scale of an answer with another number.
func (s *session) replicas(scale *response, count int64) *unstructured.Unstructured {
	s.t.Helper()
	object := scale.object()
	s.set(object, count, "spec", "replicas")
	return object
}

// TestScaleWithoutVersionBesideWriters reproduces kubernetes/kubernetes 80572: without a resource
// version the server tries again when others write the object meanwhile.
func TestScaleWithoutVersionBesideWriters(t *testing.T) {
	const writers = 12
	compare(t, func(s *session) {
		path := s.gadgets() + "/g"
		s.do("create", http.MethodPost, s.gadgets(), gadget("g", `{"size":1}`)).want(http.StatusCreated)
		var group errgroup.Group
		for i := range writers {
			group.Go(func() error {
				body := fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"g","namespace":%q},"spec":{"replicas":%d}}`, s.namespace, i+2)
				return s.mustWrite(http.MethodPut, path+"/scale", body, jsonType)
			})
			group.Go(func() error {
				return s.mustWrite(http.MethodPatch, path, fmt.Sprintf(`{"metadata":{"labels":{"l%d":"x"}}}`, i), mergePatch)
			})
		}
		if err := group.Wait(); err != nil {
			s.t.Error(err)
		}
		last := s.peek(http.MethodGet, path).want(http.StatusOK).object()
		if len(last.GetLabels()) != writers {
			s.t.Errorf("%d of %d labels are left", len(last.GetLabels()), writers)
		}
		if last.GetGeneration() != writers+1 {
			s.t.Errorf("generation is %d after %d scalings, want %d", last.GetGeneration(), writers, writers+1)
		}
	})
}

// mustWrite sends a request from any goroutine.
func (s *session) mustWrite(method, path, body, contentType string) error {
	answer, err := s.open(s.t.Context(), s.target.api, method, path, body, "Content-Type", contentType)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s answers %s", method, path, answer.Status)
	}
	return nil
}
