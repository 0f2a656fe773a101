// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package writes shows that writers who meet at one object lose nothing.
package writes

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/test/env"
)

// writers is how many clients write at the same time.
const writers = 50

// kind is a resource under test and how to make and change an object of it.
type kind struct {
	resource schema.GroupVersionResource
	object   func(name string, mark int64) *unstructured.Unstructured
	// bump changes the object in a way that a later reader can count.
	bump  func(object *unstructured.Unstructured) error
	count func(object *unstructured.Unstructured) (int64, error)
}

const markAnnotation = "writes.annex.test/mark"

// markedBy says in an annotation who made the object.
func markedBy(object *unstructured.Unstructured, mark int64) *unstructured.Unstructured {
	object.SetAnnotations(map[string]string{markAnnotation: fmt.Sprint(mark)})
	return object
}

func kinds() map[string]kind {
	return map[string]kind{
		"custom resource": {
			resource: env.GadgetResource("v1"),
			object: func(name string, mark int64) *unstructured.Unstructured {
				return markedBy(env.Gadget("t", name, map[string]any{"size": int64(0)}), mark)
			},
			bump: func(object *unstructured.Unstructured) error {
				size, _, err := unstructured.NestedInt64(object.Object, "spec", "size")
				if err != nil {
					return err
				}
				return unstructured.SetNestedField(object.Object, size+1, "spec", "size")
			},
			count: func(object *unstructured.Unstructured) (int64, error) {
				size, _, err := unstructured.NestedInt64(object.Object, "spec", "size")
				return size, err
			},
		},
		"AnnexedGroup": {
			resource: schema.GroupVersionResource{Group: "kubeannex.io", Version: "v1alpha1", Resource: "annexedgroups"},
			object: func(name string, mark int64) *unstructured.Unstructured {
				object := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "kubeannex.io/v1alpha1",
					"kind":       "AnnexedGroup",
					"metadata":   map[string]any{"name": name + ".annex.test"},
				}}
				return markedBy(object, mark)
			},
			bump: func(object *unstructured.Unstructured) error {
				resources, _, err := unstructured.NestedSlice(object.Object, "spec", "resources")
				if err != nil {
					return err
				}
				resources = append(resources, map[string]any{"resource": fmt.Sprintf("kind%ds", len(resources))})
				return unstructured.SetNestedSlice(object.Object, resources, "spec", "resources")
			},
			count: func(object *unstructured.Unstructured) (int64, error) {
				resources, _, err := unstructured.NestedSlice(object.Object, "spec", "resources")
				return int64(len(resources)), err
			},
		},
	}
}

func startServer(t *testing.T) dynamic.Interface {
	t.Helper()
	server := testserver.StartStandalone(t)
	if err := env.InstallGadgets(t.Context(), server.ClientConfig); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(server.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// inParallel calls write once for every writer and waits for all of them.
func inParallel(write func(writer int64)) {
	var group sync.WaitGroup
	for writer := range int64(writers) {
		group.Go(func() { write(writer) })
	}
	group.Wait()
}

func TestConcurrentWrites(t *testing.T) {
	client := startServer(t)
	for name, k := range kinds() {
		t.Run(name, func(t *testing.T) {
			resource := func(object *unstructured.Unstructured) dynamic.ResourceInterface {
				return client.Resource(k.resource).Namespace(object.GetNamespace())
			}
			t.Run("one create of a name wins", func(t *testing.T) { testCreate(t, k, resource) })
			t.Run("no update is lost", func(t *testing.T) { testUpdate(t, k, resource) })
			t.Run("one of the updates of a version wins", func(t *testing.T) { testStaleUpdate(t, k, resource) })
			t.Run("one delete wins", func(t *testing.T) { testDelete(t, k, resource) })
		})
	}
}

// A standalone server has no garbage collector, so no deletion may wait for one.
func TestStandaloneDeletionEnds(t *testing.T) {
	client := startServer(t)
	gadgets := client.Resource(env.GadgetResource("v1")).Namespace("t")
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		t.Run(string(policy), func(t *testing.T) {
			if _, err := gadgets.Create(t.Context(), env.Gadget("t", "g", nil), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := gadgets.Delete(t.Context(), "g", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatal(err)
			}
			if _, err := gadgets.Get(t.Context(), "g", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("after the deletion: got %v, want NotFound", err)
			}
		})
	}
}

type resourceOf func(*unstructured.Unstructured) dynamic.ResourceInterface

func testCreate(t *testing.T, k kind, resource resourceOf) {
	won := make([]bool, writers)
	inParallel(func(writer int64) {
		object := k.object("created", writer)
		_, err := resource(object).Create(t.Context(), object, metav1.CreateOptions{})
		switch {
		case err == nil:
			won[writer] = true
		case !apierrors.IsAlreadyExists(err):
			t.Errorf("writer %d: got %v, want AlreadyExists", writer, err)
		}
	})
	var winners []string
	for writer, w := range won {
		if w {
			winners = append(winners, fmt.Sprint(writer))
		}
	}
	stored := read(t, resource, k.object("created", 0))
	if diff := cmp.Diff([]string{stored.GetAnnotations()[markAnnotation]}, winners); diff != "" {
		t.Errorf("the stored object is not the one winner's (-stored +winners):\n%s", diff)
	}
}

// testUpdate lets every writer add one until its addition is stored.
func testUpdate(t *testing.T, k kind, resource resourceOf) {
	example := k.object("updated", 0)
	create(t, resource, example)
	var conflicts sync.Map
	inParallel(func(writer int64) {
		for attempt := 0; ; attempt++ {
			err := addOne(t.Context(), k, resource, example)
			if err == nil {
				conflicts.Store(writer, attempt)
				return
			}
			if !apierrors.IsConflict(err) {
				t.Errorf("writer %d: got %v, want Conflict", writer, err)
				return
			}
		}
	})
	stored := read(t, resource, example)
	got, err := k.count(stored)
	if err != nil {
		t.Fatal(err)
	}
	if got != writers {
		t.Errorf("%d updates were acknowledged and %d are stored", writers, got)
	}
	if got, want := stored.GetGeneration(), int64(1+writers); got != want {
		t.Errorf("generation is %d after %d changes of the spec, want %d", got, writers, want)
	}
	total := 0
	conflicts.Range(func(_, attempts any) bool { total += attempts.(int); return true })
	if total == 0 {
		t.Error("no writer met another: nothing was tested")
	}
}

func addOne(ctx context.Context, k kind, resource resourceOf, example *unstructured.Unstructured) error {
	current, err := resource(example).Get(ctx, example.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := k.bump(current); err != nil {
		return err
	}
	_, err = resource(example).Update(ctx, current, metav1.UpdateOptions{})
	return err
}

// testStaleUpdate lets all writers update the same version.
func testStaleUpdate(t *testing.T, k kind, resource resourceOf) {
	base := create(t, resource, k.object("raced", 0))
	var won sync.Map
	inParallel(func(writer int64) {
		object := markedBy(base.DeepCopy(), writer)
		if err := k.bump(object); err != nil {
			t.Error(err)
			return
		}
		_, err := resource(base).Update(t.Context(), object, metav1.UpdateOptions{})
		switch {
		case err == nil:
			won.Store(fmt.Sprint(writer), true)
		case !apierrors.IsConflict(err):
			t.Errorf("writer %d: got %v, want Conflict", writer, err)
		}
	})
	var winners []string
	won.Range(func(writer, _ any) bool { winners = append(winners, writer.(string)); return true })
	stored := read(t, resource, base)
	if diff := cmp.Diff([]string{stored.GetAnnotations()[markAnnotation]}, winners); diff != "" {
		t.Errorf("the stored object is not the one winner's (-stored +winners):\n%s", diff)
	}
}

func testDelete(t *testing.T, k kind, resource resourceOf) {
	base := create(t, resource, k.object("deleted", 0))
	uid := base.GetUID()
	var won sync.Map
	inParallel(func(writer int64) {
		err := resource(base).Delete(t.Context(), base.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		switch {
		case err == nil:
			won.Store(writer, true)
		case !apierrors.IsNotFound(err):
			t.Errorf("writer %d: got %v, want NotFound", writer, err)
		}
	})
	winners := 0
	won.Range(func(any, any) bool { winners++; return true })
	if winners != 1 {
		t.Errorf("%d deletes of one object succeeded", winners)
	}
}

func create(t *testing.T, resource resourceOf, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created, err := resource(object).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func read(t *testing.T, resource resourceOf, example *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored, err := resource(example).Get(t.Context(), example.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}
