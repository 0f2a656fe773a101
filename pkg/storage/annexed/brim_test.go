// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// TestFullPage lists as many pods as there are through an index. The answer must
// be found without listing a second time.
func TestFullPage(t *testing.T) {
	s := newStack(t, cached, stackOptions{declared: Indexes{Fields: []string{"spec.nodeName"}}})
	for _, pod := range []struct{ name, node string }{{"a", "n1"}, {"b", "n2"}, {"c", "n1"}, {"d", "n3"}} {
		object := &example.Pod{Spec: example.PodSpec{NodeName: pod.node}}
		object.Name, object.Namespace = pod.name, "default"
		if err := s.Create(t.Context(), podPrefix+"default/"+pod.name, object, &example.Pod{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		node         string
		limit        int64
		wantContinue bool
	}{
		"others come behind the last":       {node: "n2", limit: 1, wantContinue: true},
		"others lie between and behind":     {node: "n1", limit: 2, wantContinue: true},
		"the last is the last of all":       {node: "n3", limit: 1},
		"more match":                        {node: "n1", limit: 1, wantContinue: true},
		"fewer match than the limit allows": {node: "n1", limit: 3},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.metrics.Counts(podResource())
			list := &example.PodList{}
			err := s.GetList(t.Context(), podPrefix, storage.ListOptions{Recursive: true, Predicate: storage.SelectionPredicate{
				Field: fields.OneTermEqualSelector("spec.nodeName", tc.node), Label: labels.Everything(), GetAttrs: podAttributes, Limit: tc.limit,
			}}, list)
			if err != nil {
				t.Fatal(err)
			}
			if got := list.Continue != ""; got != tc.wantContinue {
				t.Errorf("got continue token %q, want one: %v", list.Continue, tc.wantContinue)
			}
			counts := s.metrics.Counts(podResource()).Sub(before)
			if got := counts[Request{CallerConsistentRead, OperationCurrentResourceVersion}]; got != 1 {
				t.Errorf("etcd was asked for its revision %d times, want once", got)
			}
			if got := counts[Request{CallerClient, OperationList}]; got != 0 {
				t.Errorf("etcd was listed %d times, want not at all", got)
			}
		})
	}
}
