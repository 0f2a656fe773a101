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

const mib = 1 << 20

// note is the spec of a gadget with a text of a size in tenths of a MiB.
func note(tenths int) string {
	return `{"note":"` + strings.Repeat("n", tenths*mib/10) + `"}`
}

// TestObjectSizes reproduces kubernetes/kubernetes 74600: an object over the 3 MiB of a request is
// refused with 413; one that fits but is over the 1.5 MiB of an etcd request is refused by etcd,
// and as kube-apiserver does annex passes that on as 500.
func TestObjectSizes(t *testing.T) {
	sizes := map[int]int{10: http.StatusCreated, 14: http.StatusCreated, 16: http.StatusInternalServerError, 29: http.StatusInternalServerError, 32: http.StatusRequestEntityTooLarge}
	compare(t, func(s *session) {
		s.do("create small", http.MethodPost, s.gadgets(), gadget("small", `{"size":1}`)).want(http.StatusCreated)
		since := s.now()
		for _, tenths := range []int{10, 14, 16, 29, 32} {
			name := fmt.Sprintf("g%d", tenths)
			created := s.do("create "+name, http.MethodPost, s.gadgets(), gadget(name, note(tenths)))
			s.checkSize(created, sizes[tenths])
			s.t.Logf("create of %d.%d MiB: %d %.150s", tenths/10, tenths%10, created.code, created.body)
			want := sizes[tenths]
			if want == http.StatusCreated {
				want = http.StatusOK
			}
			update := strings.Replace(gadget("small", note(tenths)), `"metadata":{`, `"metadata":{"resourceVersion":"`+s.peek(http.MethodGet, s.gadgets()+"/small").version()+`",`, 1)
			s.checkSize(s.do("update to "+name, http.MethodPut, s.gadgets()+"/small", update), want)
			s.checkSize(s.do("patch to "+name, http.MethodPatch, s.gadgets()+"/small", `{"spec":`+note(tenths)+`}`, "Content-Type", mergePatch), want)
			s.checkSize(s.do("apply to "+name, http.MethodPatch, s.gadgets()+"/small?fieldManager=m&force=true", gadget("small", note(tenths)), "Content-Type", applyPatch), want)
		}
		kept := s.do("what is kept", http.MethodGet, s.gadgets()+"/small", "").want(http.StatusOK)
		if size := len(kept.body); size < 14*mib/10 || size > 15*mib/10 {
			s.t.Errorf("the object has %d bytes, want the last that fitted", size)
		}
		// What was refused left nothing behind: two creates, and four sizes of the
		// small one by three writers, of which some change nothing.
		for _, next := range s.eventsSince("events", since) {
			if len(next.Object) > 16*mib/10 {
				s.t.Errorf("an event of %d bytes", len(next.Object))
			}
		}
		s.do("delete", http.MethodDelete, s.gadgets(), "").want(http.StatusOK)
	})
}

func (s *session) checkSize(got *response, want int) {
	s.t.Helper()
	switch want {
	case http.StatusRequestEntityTooLarge:
		got.wantStatus(want, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728")
	case http.StatusInternalServerError:
		// kube-apiserver knows no reason for what etcd refuses.
		got.wantStatus(want, "")
	default:
		got.want(want)
	}
}

// TestManagedFieldsGiveWay reproduces kubernetes/kubernetes 74600: when an object fits only without
// its managed fields, it is stored without them rather than refused.
func TestManagedFieldsGiveWay(t *testing.T) {
	// Long names: the managed fields are as large as the object.
	long := strings.Repeat("x", 200)
	fields := func(prefix string, count int) string {
		var b strings.Builder
		b.WriteString("{")
		for i := range count {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, `"%s%04d%s":1`, prefix, i, long)
		}
		b.WriteString("}")
		return b.String()
	}
	compare(t, func(s *session) {
		name := "grown"
		path := fixturePath + "/planets/" + name
		s.ask(s.target.api, "make room", http.MethodDelete, path, "")
		grow := func(step, manager, prefix string, count int) *response {
			return s.do(step, http.MethodPatch, path+"?fieldManager="+manager, object("Planet", name, fields(prefix, count)), "Content-Type", applyPatch)
		}
		small := grow("apply small", "a", "a", 10).want(http.StatusCreated)
		if len(small.object().GetManagedFields()) != 1 {
			s.t.Errorf("managed fields of %d managers, want 1", len(small.object().GetManagedFields()))
		}
		// The second try without managed fields is for all writes but apply.
		grow("apply what fits only without", "b", "b", 4000).wantStatus(http.StatusInternalServerError, "", "etcdserver: request is too large")
		kept := s.do("after the apply", http.MethodGet, path, "").want(http.StatusOK)
		if managers := len(kept.object().GetManagedFields()); managers != 1 || len(kept.body) > 10000 {
			s.t.Errorf("a refused apply left %d bytes of %d managers", len(kept.body), managers)
		}
		merged := s.do("merge what fits only without", http.MethodPatch, path, `{"spec":`+fields("m", 4000)+`}`, "Content-Type", mergePatch).want(http.StatusOK)
		created := s.do("create what fits only without", http.MethodPost, fixturePath+"/planets", object("Planet", name+"-new", fields("c", 4000))).want(http.StatusCreated)
		for _, got := range []*response{merged, created} {
			if managers := len(got.object().GetManagedFields()); managers != 0 {
				s.t.Errorf("%s: stored with the fields of %d managers, want none", got.name, managers)
			}
		}
		update := strings.Replace(object("Planet", name+"-new", fields("u", 4000)), `"metadata":{`, `"metadata":{"resourceVersion":"`+created.version()+`",`, 1)
		s.do("PUT what fits only without", http.MethodPut, fixturePath+"/planets/"+name+"-new", update).want(http.StatusOK)
		// An apply would bring the managed fields back, so that it stays shut out.
		s.do("apply a small field", http.MethodPatch, path+"?fieldManager=a&force=true", object("Planet", name, `{"z":2}`), "Content-Type", applyPatch).
			wantStatus(http.StatusInternalServerError, "", "etcdserver: request is too large")
		grow("apply more than fits at all", "d", "d", 9000).wantStatus(http.StatusInternalServerError, "")
		s.ask(s.target.api, "clean up", http.MethodDelete, path, "").want(http.StatusOK)
		s.ask(s.target.api, "clean up", http.MethodDelete, path+"-new", "")
	})
}
