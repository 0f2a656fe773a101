// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcopy_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/annexedgroup/hostcopy"
	"github.com/kubeannex/annex/test/env"
)

// story changes an object of the source the way its users would.
type story func(context.Context, *testing.T, dynamic.ResourceInterface, string)

func TestObjectIsWrittenBack(t *testing.T) {
	cases := map[string]struct {
		// before happens at both places, after at the source only. Without before there is no copy.
		before, after []story
		// wantLag is how far the generation lags behind.
		wantLag int64
	}{
		"nothing happened":                    {before: []story{create}},
		"the spec changed once":               {before: []story{create}, after: []story{resize(5)}},
		"the spec changed ten times":          {before: []story{create}, after: []story{resize(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)}},
		"the spec went and came back":         {before: []story{create}, after: []story{resize(9, 1)}},
		"only status changed":                 {before: []story{create}, after: []story{status("x"), status("y")}},
		"spec and status changed":             {before: []story{create, status("a")}, after: []story{resize(3, 4), status("b")}},
		"status went":                         {before: []story{create, status("a")}, after: []story{status("")}},
		"labels and finalizers were added":    {before: []story{create}, after: []story{annotate, finalize("lab.annex.test/keep")}},
		"it was applied":                      {before: []story{create}, after: []story{apply("one", 4), apply("two", 4)}},
		"managed fields were dropped":         {before: []story{create}, after: []story{unmanage}},
		"it is being deleted":                 {before: []story{create}, after: []story{finalize("lab.annex.test/keep"), resize(7), remove(metav1.DeletePropagationBackground)}},
		"it is being deleted with dependents": {before: []story{create}, after: []story{remove(metav1.DeletePropagationForeground)}},
		"it breaks a rule that is newer":      {before: []story{create}, after: []story{resize(1000)}},
		"it is new":                           {after: []story{create}},
		"it is new and busy":                  {after: []story{create, resize(1, 2, 3, 4), status("a"), apply("one", 8), finalize("lab.annex.test/keep")}},
		"it is new and being deleted":         {after: []story{create, finalize("lab.annex.test/keep"), resize(2), remove(metav1.DeletePropagationBackground)}},
		"its generation is far ahead":         {before: []story{create}, after: []story{many(hostcopy.MaxRaise + 6)}, wantLag: hostcopy.MaxRaise + 5},
	}
	i := 0
	for name, tc := range cases {
		i++
		object := fmt.Sprintf("written-%d", i)
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			from, to := source.Resource(gadgets("v1")).Namespace(namespace), target.Resource(gadgets("v1")).Namespace(namespace)
			private := target.Resource(gadgets(kubeannexv1alpha1.PrivateVersion)).Namespace(namespace)
			var have *unstructured.Unstructured
			for _, act := range tc.before {
				act(ctx, t, from, object)
			}
			if tc.before != nil {
				have = copyOver(ctx, t, from, object)
			}
			for _, act := range tc.after {
				act(ctx, t, from, object)
			}
			wanted := get(ctx, t, from, object)
			makeLater(wanted)
			writer := &hostcopy.Writer{Client: target, Resource: gadgets(kubeannexv1alpha1.PrivateVersion), Status: true}
			if _, err := writer.Write(ctx, wanted, have); err != nil {
				t.Fatal(err)
			}
			got := get(ctx, t, to, object)
			if lag := wanted.GetGeneration() - got.GetGeneration(); lag != tc.wantLag {
				t.Errorf("generation is %d, %d behind, want %d", got.GetGeneration(), lag, tc.wantLag)
			}
			if diff := cmp.Diff(withoutOwn(wanted), withoutOwn(got)); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			again := get(ctx, t, private, object)
			if _, err := writer.Write(ctx, wanted, again); err != nil {
				t.Fatal(err)
			}
			if after := get(ctx, t, private, object); after.GetResourceVersion() != again.GetResourceVersion() {
				t.Errorf("the second time wrote again:\n%s", cmp.Diff(again, after))
			}
		})
	}
}

// makeLater moves what managers did by an hour: a test takes less than the
// second that times are counted in.
func makeLater(object *unstructured.Unstructured) {
	managed := object.GetManagedFields()
	for i := range managed {
		if managed[i].Time != nil {
			later := metav1.NewTime(managed[i].Time.Add(time.Hour))
			managed[i].Time = &later
		}
	}
	object.SetManagedFields(managed)
}

// copyOver makes the copy that the adoption would have left.
func copyOver(ctx context.Context, t *testing.T, from dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	writer := &hostcopy.Writer{Client: target, Resource: gadgets(kubeannexv1alpha1.PrivateVersion), Status: true}
	have, err := writer.Write(ctx, get(ctx, t, from, name), nil)
	if err != nil {
		t.Fatal(err)
	}
	return have
}

// withoutOwn drops what the API sets on its own.
func withoutOwn(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	if object.GetDeletionTimestamp() != nil {
		_ = unstructured.SetNestedField(object.Object, "set", "metadata", "deletionTimestamp")
	}
	return object.Object
}

func TestCopyIsDeleted(t *testing.T) {
	cases := map[string][]story{
		"plain":             {create},
		"with finalizers":   {create, finalize("lab.annex.test/keep")},
		"and being deleted": {create, finalize("lab.annex.test/keep"), remove(metav1.DeletePropagationForeground)},
	}
	i := 0
	for name, acts := range cases {
		i++
		object := fmt.Sprintf("deleted-%d", i)
		t.Run(name, func(t *testing.T) {
			ctx, copies := t.Context(), target.Resource(gadgets("v1")).Namespace(namespace)
			for _, act := range acts {
				act(ctx, t, copies, object)
			}
			writer := &hostcopy.Writer{Client: target, Resource: gadgets(kubeannexv1alpha1.PrivateVersion), Status: true}
			if err := writer.Delete(ctx, get(ctx, t, copies, object)); err != nil {
				t.Fatal(err)
			}
			if _, err := copies.Get(ctx, object, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the copy is there still: %v", err)
			}
		})
	}
}

func get(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := at.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func create(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name string) {
	t.Helper()
	if _, err := at.Create(ctx, env.Gadget(namespace, name, map[string]any{"size": int64(1), "color": "red"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func patch(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name, body string, subresources ...string) {
	t.Helper()
	if _, err := at.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "user"}, subresources...); err != nil {
		t.Fatal(err)
	}
}

func resize(sizes ...int) story {
	return func(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name string) {
		for _, size := range sizes {
			patch(ctx, t, at, name, fmt.Sprintf(`{"spec":{"size":%d}}`, size))
		}
	}
}

func many(times int) story {
	return func(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name string) {
		for i := range times {
			patch(ctx, t, at, name, fmt.Sprintf(`{"spec":{"note":"%d"}}`, i))
		}
	}
}

func status(selector string) story {
	return func(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name string) {
		body := `{"status":null}`
		if selector != "" {
			body = fmt.Sprintf(`{"status":{"sel":%q}}`, selector)
		}
		patch(ctx, t, at, name, body, "status")
	}
}

func annotate(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name string) {
	patch(ctx, t, at, name, `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}`)
}

func finalize(finalizer string) story {
	return func(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name string) {
		patch(ctx, t, at, name, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer))
	}
}

func apply(manager string, size int64) story {
	return func(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name string) {
		object := env.Gadget(namespace, name, map[string]any{"size": size})
		if _, err := at.Apply(ctx, name, object, metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
			t.Fatal(err)
		}
	}
}

func unmanage(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name string) {
	patch(ctx, t, at, name, `{"metadata":{"managedFields":[{}]}}`)
}

func remove(policy metav1.DeletionPropagation) story {
	return func(ctx context.Context, t *testing.T, at dynamic.ResourceInterface, name string) {
		if err := at.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
	}
}
