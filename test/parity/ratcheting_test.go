// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOldObjectsStayEditable reproduces kubernetes/kubernetes 94060 and 129503: after a schema is
// tightened, the parts of an old object that nobody touches pass, new invalid values do not.
func TestOldObjectsStayEditable(t *testing.T) {
	const loose = `{"type":"object","properties":{
		"spec":{"type":"object","properties":{"color":{"type":"string"},"size":{"type":"integer"},"note":{"type":"string","maxLength":50}}},
		"status":{"type":"object","properties":{"phase":{"type":"string"},"size":{"type":"integer"}}}}}`
	const tight = `[
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color/enum","value":["red","blue","green"]},
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/note/x-kubernetes-validations","value":[{"rule":"self.size() < 3","message":"note is too long"}]},
		{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/phase/enum","value":["ok"]}]`
	compare(t, func(s *session) {
		path := s.of("ratchets") + "/old"
		invalid := metav1.StatusReasonInvalid
		patch := func(name, path, body string) *response {
			return s.do(name, http.MethodPatch, path, body, "Content-Type", mergePatch)
		}
		s.install("ratchets", definition("ratchets", "Ratchet", loose, `,"subresources":{"status":{}}`))
		s.do("create", http.MethodPost, s.of("ratchets"), `{"apiVersion":"lab.annex.test/v1","kind":"Ratchet",
			"metadata":{"name":"old","finalizers":["lab.annex.test/keep"]},"spec":{"color":"purple","size":1,"note":"long"}}`).want(http.StatusCreated)
		patch("status", path+"/status", `{"status":{"phase":"odd"}}`).want(http.StatusOK)

		s.ask(s.target.crds, "tighten", http.MethodPatch, definitions+"/ratchets.lab.annex.test", tight, "Content-Type", jsonPatch).want(http.StatusOK)
		s.until("the tight schema", func() bool {
			probe := object("Ratchet", "probe", `{"color":"purple"}`)
			return s.ask(s.target.api, "probe", http.MethodPost, s.of("ratchets")+"?dryRun=All", probe).code == http.StatusUnprocessableEntity
		})

		s.do("GET", http.MethodGet, path, "").want(http.StatusOK).wantField("purple", "spec", "color")
		patch("label", path, `{"metadata":{"labels":{"a":"b"}}}`).want(http.StatusOK)
		patch("another field of spec", path, `{"spec":{"size":2}}`).want(http.StatusOK)
		patch("another field of status", path+"/status", `{"status":{"size":2}}`).want(http.StatusOK).wantField("odd", "status", "phase")
		body := string(s.peek(http.MethodGet, path).body)
		s.do("PUT the same", http.MethodPut, path, body).want(http.StatusOK)
		s.do("PUT the same status", http.MethodPut, path+"/status", body).want(http.StatusOK)
		s.do("apply another field", http.MethodPatch, path+"?fieldManager=m", object("Ratchet", "old", `{"size":2}`), "Content-Type", applyPatch).want(http.StatusOK)
		patch("a bad colour", path, `{"spec":{"color":"pink"}}`).wantStatus(http.StatusUnprocessableEntity, invalid, `spec.color: Unsupported value: "pink"`)
		patch("a bad phase", path+"/status", `{"status":{"phase":"bad"}}`).wantStatus(http.StatusUnprocessableEntity, invalid, "status.phase")
		patch("another long note", path, `{"spec":{"note":"longer"}}`).wantStatus(http.StatusUnprocessableEntity, invalid, "note is too long")
		patch("a good colour", path, `{"spec":{"color":"red"}}`).want(http.StatusOK)
		patch("the old colour again", path, `{"spec":{"color":"purple"}}`).wantStatus(http.StatusUnprocessableEntity, invalid, "spec.color")
		s.do("create another", http.MethodPost, s.of("ratchets"), object("Ratchet", "new", `{"color":"purple"}`)).wantStatus(http.StatusUnprocessableEntity, invalid, "spec.color")
		s.do("delete", http.MethodDelete, path, "").want(http.StatusOK)
		patch("let it go", path, `{"metadata":{"finalizers":null}}`).want(http.StatusOK)
		s.do("gone", http.MethodGet, path, "").wantStatus(http.StatusNotFound, metav1.StatusReasonNotFound)
	})
}
