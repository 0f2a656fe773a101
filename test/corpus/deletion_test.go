// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubeannex/annex/test/env"
)

// step is one request of a script with its answer.
type step struct {
	Name   string
	Answer answer
}

// deletion is a definition that is deleted while an object with a finalizer exists.
type deletion struct {
	*server

	definition definition
	collection string
	steps      []step
}

// TestDeletionWithFinalizer deletes a definition whose last object has a finalizer
// (kubernetes/kubernetes 60538). Until the finalizer is gone the definition stays,
// nothing can be created, what exists can be read and changed, and a restart of
// annex changes nothing of that. Afterwards all is gone, so a definition of the
// same name begins without objects.
func TestDeletionWithFinalizer(t *testing.T) {
	ctx := testContext(t)
	annex, host, err := both(ctx, func(ctx context.Context, s *server) ([]step, error) {
		d, err := newDeletion(s)
		if err != nil {
			return nil, err
		}
		err = d.run(ctx)
		return d.steps, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference(host, annex); diff != "" {
		t.Errorf("-host +annex:\n%s", diff)
	}
	want := map[string]int{
		"create the definition": 201, "create held": 201, "create free": 201, "delete the definition": 200,
		"create while terminating": 403, "apply while terminating": 403, "read the definition": 200,
		"list while terminating": 200, "update while terminating": 200, "patch while terminating": 200,
		"delete held again": 200, "create the definition while terminating": 409,
		"create after restart": 403, "remove the finalizer": 200, "list afterwards": 404,
		"create the definition again": 201, "list the new objects": 200, "create in the new definition": 201,
		"delete the new definition": 200,
	}
	for _, step := range annex {
		if step.Answer.Code != want[step.Name] {
			t.Errorf("%s: got %+v, want code %d", step.Name, step.Answer, want[step.Name])
		}
		delete(want, step.Name)
	}
	if len(want) > 0 {
		t.Errorf("steps that did not happen: %v", want)
	}
}

func newDeletion(s *server) (*deletion, error) {
	crd, err := env.GadgetCRD()
	if err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: fields}
	unstructured.RemoveNestedField(object.Object, "status")
	object.SetAPIVersion("apiextensions.k8s.io/v1")
	object.SetKind("CustomResourceDefinition")
	d := newDefinition("", document{object, "gadget"})
	return &deletion{server: s, definition: d, collection: collectionPath(env.GadgetResource("v1"), metav1.NamespaceDefault)}, nil
}

// run goes through all steps and stops at the first that has no answer.
func (d *deletion) run(ctx context.Context) error {
	for _, part := range []func(context.Context) error{d.begin, d.whileTerminating, d.afterRestart, d.again} {
		if err := part(ctx); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return nil
}

func (d *deletion) record(name string, got raw, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	d.steps = append(d.steps, step{name, got.answer})
	return nil
}

func (d *deletion) create(ctx context.Context, name, gadget string, finalizers ...string) error {
	object := env.Gadget(metav1.NamespaceDefault, gadget, nil)
	object.SetFinalizers(finalizers)
	got, err := d.post(ctx, d.collection, object)
	return d.record(name, got, err)
}

func (d *deletion) define(ctx context.Context, name string) error {
	v, err := d.server.define(ctx, d.definition)
	return d.record(name, raw{answer: v.created}, err)
}

func (d *deletion) definitionPath() string { return definitionsPath + "/" + d.definition.GetName() }

func (d *deletion) begin(ctx context.Context) error {
	if err := d.define(ctx, "create the definition"); err != nil {
		return err
	}
	if err := d.create(ctx, "create held", "held", "lab.annex.test/hold"); err != nil {
		return err
	}
	if err := d.create(ctx, "create free", "free"); err != nil {
		return err
	}
	got, err := d.do(ctx, http.MethodDelete, d.definitionPath(), nil)
	if err := d.record("delete the definition", got, err); err != nil {
		return err
	}
	// The object without a finalizer goes, the other one is marked.
	return d.wait(ctx, d.collection, func(got raw) bool {
		items := mapsAt(map[string]any{"list": got.Object}, "list", "items")
		if len(items) != 1 {
			return false
		}
		_, marked, _ := unstructured.NestedString(items[0], "metadata", "deletionTimestamp")
		return marked
	})
}

func (d *deletion) wait(ctx context.Context, path string, done func(raw) bool) error {
	var last raw
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		last, err = d.get(ctx, path)
		return err == nil && done(last), err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w, last answer: %+v", path, err, last.answer)
	}
	return nil
}

func (d *deletion) whileTerminating(ctx context.Context) error {
	if err := d.create(ctx, "create while terminating", "late"); err != nil {
		return err
	}
	late, err := env.Gadget(metav1.NamespaceDefault, "late", nil).MarshalJSON()
	if err != nil {
		return err
	}
	held := d.collection + "/held"
	got, err := d.apply(ctx, d.collection+"/late", late)
	if err := d.record("apply while terminating", got, err); err != nil {
		return err
	}
	got, err = d.get(ctx, d.definitionPath())
	if err := d.record("read the definition", got, err); err != nil {
		return err
	}
	got, err = d.get(ctx, d.collection)
	if err := d.record("list while terminating", got, err); err != nil {
		return err
	}
	object := env.Gadget(metav1.NamespaceDefault, "held", map[string]any{"color": "red"})
	object.SetFinalizers([]string{"lab.annex.test/hold"})
	got, err = d.replace(ctx, held, object)
	if err := d.record("update while terminating", got, err); err != nil {
		return err
	}
	got, err = d.merge(ctx, held, []byte(`{"metadata":{"labels":{"touched":"true"}}}`))
	if err := d.record("patch while terminating", got, err); err != nil {
		return err
	}
	got, err = d.do(ctx, http.MethodDelete, held, nil)
	if err := d.record("delete held again", got, err); err != nil {
		return err
	}
	got, err = d.post(ctx, definitionsPath, d.definition.Unstructured)
	return d.record("create the definition while terminating", got, err)
}

// afterRestart kills annex in the middle of the deletion; the host goes on, as
// annex needs it to start.
func (d *deletion) afterRestart(ctx context.Context) error {
	if d.server == suite.annex {
		if err := d.process.Kill(); err != nil {
			return err
		}
		if err := d.process.Restart(ctx); err != nil {
			return err
		}
	}
	if err := d.create(ctx, "create after restart", "late"); err != nil {
		return err
	}
	got, err := d.merge(ctx, d.collection+"/held", []byte(`{"metadata":{"finalizers":null}}`))
	if err := d.record("remove the finalizer", got, err); err != nil {
		return err
	}
	if err := d.wait(ctx, d.definitionPath(), func(got raw) bool { return got.Code == http.StatusNotFound }); err != nil {
		return err
	}
	if err := d.wait(ctx, d.collection, func(got raw) bool { return got.Code == http.StatusNotFound }); err != nil {
		return err
	}
	got, err = d.get(ctx, d.collection)
	return d.record("list afterwards", got, err)
}

func (d *deletion) again(ctx context.Context) error {
	if err := d.define(ctx, "create the definition again"); err != nil {
		return err
	}
	got, err := d.get(ctx, d.collection)
	if err := d.record("list the new objects", got, err); err != nil {
		return err
	}
	if err := d.create(ctx, "create in the new definition", "held"); err != nil {
		return err
	}
	got, err = d.do(ctx, http.MethodDelete, d.definitionPath(), nil)
	if err := d.record("delete the new definition", got, err); err != nil {
		return err
	}
	return d.wait(ctx, d.definitionPath(), func(got raw) bool { return got.Code == http.StatusNotFound })
}

func (s *server) apply(ctx context.Context, path string, body []byte) (raw, error) {
	return s.patch(ctx, types.ApplyPatchType, path, body, "fieldManager", userAgent)
}

func (s *server) merge(ctx context.Context, path string, body []byte) (raw, error) {
	return s.patch(ctx, types.MergePatchType, path, body)
}
