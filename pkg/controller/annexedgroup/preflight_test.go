// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/preflight"
)

func TestRefusals(t *testing.T) {
	report := &preflight.Report{Findings: []preflight.Finding{
		{Severity: preflight.SeverityRefusal, Check: preflight.CheckDefinitions, Message: "is being deleted"},
		{Severity: preflight.SeverityWarning, Check: preflight.CheckObjects, Message: "may not be read"},
		{Severity: preflight.SeverityWarning, Check: preflight.CheckManagers, Message: "is managed"},
		{Severity: preflight.SeverityInfo, Check: preflight.CheckObjects, Message: "is small"},
	}}
	if diff := cmp.Diff([]string{"is being deleted", "may not be read"}, refusals(report)); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}

func TestCheckReplica(t *testing.T) {
	cases := map[string]struct {
		known kubeannexv1alpha1.ReplicaResource
		ready bool
		want  string
	}{
		"established":                 {kubeannexv1alpha1.ReplicaResource{Resource: "gadgets", DefinitionGeneration: 2, Established: true}, false, ""},
		"ready":                       {kubeannexv1alpha1.ReplicaResource{Resource: "gadgets", DefinitionGeneration: 3, Established: true, Ready: true}, true, ""},
		"established, cache not full": {kubeannexv1alpha1.ReplicaResource{Resource: "gadgets", DefinitionGeneration: 2, Established: true}, true, "a replica of annex does not answer from its cache of gadgets yet: if it lasts, look for a conversion webhook that annex cannot reach"},
		"an older definition":         {kubeannexv1alpha1.ReplicaResource{Resource: "gadgets", DefinitionGeneration: 1, Established: true, Ready: true}, true, "a replica of annex does not know the present definition of gadgets yet"},
		"not established":             {kubeannexv1alpha1.ReplicaResource{Resource: "gadgets", DefinitionGeneration: 2}, false, "the definition of gadgets is not established in annex: read its conditions with kubectl at annex itself"},
		"another resource":            {kubeannexv1alpha1.ReplicaResource{Resource: "planets", DefinitionGeneration: 2, Established: true}, false, "a replica of annex does not know the definition of gadgets yet"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status := &kubeannexv1alpha1.ReplicaStatus{Resources: []kubeannexv1alpha1.ReplicaResource{tc.known}}
			got := ""
			if err := checkReplica(status, "gadgets", 2, tc.ready); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNextLimit(t *testing.T) {
	listOf := func(size int) *unstructured.UnstructuredList {
		return &unstructured.UnstructuredList{Items: []unstructured.Unstructured{{Object: map[string]any{
			"apiVersion": "v1", "kind": "X", "data": strings.Repeat("x", size),
		}}}}
	}
	cases := map[string]struct {
		list     *unstructured.UnstructuredList
		min, max int64
	}{
		"small objects": {listOf(100), maxPageObjects, maxPageObjects},
		"large objects": {listOf(1 << 20), 3, 4},
		"huge objects":  {listOf(8 << 20), 1, 1},
		"no object":     {&unstructured.UnstructuredList{}, maxPageObjects, maxPageObjects},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := nextLimit(tc.list); got < tc.min || got > tc.max {
				t.Errorf("got %d, want %d to %d", got, tc.min, tc.max)
			}
		})
	}
}

func TestFreshToken(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old")
	expired.ErrStatus.Continue = "go-on"
	cases := map[string]struct {
		err  error
		want string
	}{
		"no error":                   {nil, ""},
		"expired, with a token":      {expired, "go-on"},
		"expired, without a token":   {apierrors.NewResourceExpired("too old"), ""},
		"another answer of a server": {apierrors.NewNotFound(schema.GroupResource{}, "x"), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := freshToken(tc.err); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	cases := map[string]struct {
		err  error
		want string
	}{
		"several lines":  {errors.New("one\n\ttwo"), "one two"},
		"several errors": {utilerrors.NewAggregate([]error{errors.New("one"), utilerrors.NewAggregate([]error{errors.New("two")})}), "[one, two]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := oneLine(tc.err); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
