// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAnnotationsHaveLimit reproduces kubernetes/kubernetes 100572: keys and values of all
// annotations together hold 256 KiB, which client-side apply of a large object exceeds.
func TestAnnotationsHaveLimit(t *testing.T) {
	const limit = 256 << 10
	annotated := func(size int) string {
		half := size/2 - len("a")
		return fmt.Sprintf(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"g","annotations":{"a":%q,"b":%q}}}`,
			strings.Repeat("v", half), strings.Repeat("v", size-half-len("ab")))
	}
	large := "apiVersion: lab.annex.test/v1\nkind: Gadget\nmetadata: {name: large}\nspec:\n  note: " + strings.Repeat("n", 300<<10) + "\n"
	compare(t, func(s *session) {
		tooLong := "metadata.annotations: Too long: may not be more than 262144 bytes"
		s.do("one more than the limit", http.MethodPost, s.gadgets(), annotated(limit+1)).
			wantStatus(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, tooLong)
		s.do("the limit", http.MethodPost, s.gadgets(), annotated(limit)).want(http.StatusCreated)
		s.do("add one by patch", http.MethodPatch, s.gadgets()+"/g", `{"metadata":{"annotations":{"c":""}}}`, "Content-Type", mergePatch).
			wantStatus(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, tooLong)
		s.do("write the status", http.MethodPatch, s.gadgets()+"/g/status", `{"status":{"size":1}}`, "Content-Type", mergePatch).want(http.StatusOK)

		result := s.kubectl("kubectl apply", large, "apply", "-f", "-")
		if result.ExitCode == 0 || !strings.Contains(result.Stderr, tooLong) {
			s.t.Errorf("kubectl apply of a large object exits with %d: %.300s", result.ExitCode, result.Stderr)
		}
		s.do("nothing applied", http.MethodGet, s.gadgets()+"/large", "").wantStatus(http.StatusNotFound, metav1.StatusReasonNotFound)
		if result := s.kubectl("kubectl apply by the server", large, "apply", "--server-side", "-f", "-"); result.ExitCode != 0 {
			s.t.Errorf("kubectl apply --server-side of a large object: %.300s", result.Stderr)
		}
		s.do("applied", http.MethodGet, s.gadgets()+"/large", "").want(http.StatusOK).wantField(nil, "metadata", "annotations")
	})
}
