// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcopy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubeannex/annex/pkg/gone"
)

// MaxRaise is by how much the generation of one copy is raised at most, beyond
// what writing its content does: every step is a write. Copies that are further
// behind keep a lower generation than their object had in annex.
const MaxRaise = 64

// ErrAltered says that the cluster did not store what was written.
var ErrAltered = errors.New("the cluster stored something else than what was written: look for a mutating admission webhook or policy that matches it")

// fieldManager is who the cluster notes as the manager of fields for a moment,
// until managedFields are written back.
const fieldManager = "annex-controller"

// Writer writes the copies of one resource.
type Writer struct {
	// Client is of the host.
	Client dynamic.Interface
	// Resource is in the private version.
	Resource schema.GroupVersionResource
	// Status says that the resource has a status subresource. Only then
	// generations are raised: without it they count every change of status too
	// and nothing relies on them.
	Status bool
	// Converted says that a webhook converts the resource, which the definition is
	// without as long as it has the private version.
	Converted bool
	// Storage is the version that is stored, as apiVersion.
	Storage string
}

// tracks says that kube-apiserver can read all managedFields of an object. It
// converts the object to the version of every manager, and without the webhook
// that fails for versions that are more than another name. Then it keeps the
// managedFields that the copy has, so they must not be dropped before.
func (w *Writer) tracks(object *unstructured.Unstructured) bool {
	return !w.Converted || !slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.APIVersion != w.Storage
	})
}

func (w *Writer) at(namespace string) dynamic.ResourceInterface {
	return w.Client.Resource(w.Resource).Namespace(namespace)
}

// Write brings a copy, nil for none, to what is wanted and returns it as it is
// then. It may be interrupted anywhere and run again with the copy that is there.
// The copy must have the UID of the object, or have been made by Write.
func (w *Writer) Write(ctx context.Context, wanted, have *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if have == nil {
		created, err := w.create(ctx, wanted)
		if err != nil {
			return nil, err
		}
		have = created
	}
	have, err := w.writeMain(ctx, wanted, have)
	if err != nil {
		return nil, err
	}
	if have, err = w.writeStatus(ctx, wanted, have); err != nil {
		return nil, err
	}
	if have, err = w.writeManagedFields(ctx, wanted, have); err != nil {
		return nil, err
	}
	if wanted.GetDeletionTimestamp() != nil && have.GetDeletionTimestamp() == nil {
		if have, err = w.markDeleted(ctx, have); err != nil {
			return nil, err
		}
	}
	return have, w.compare(wanted, have)
}

func (w *Writer) compare(wanted, have *unstructured.Unstructured) error {
	want, err := FormOf(wanted)
	if err != nil {
		return err
	}
	got, err := FormOf(have)
	if err == nil && got.Content != want.Content {
		err = ErrAltered
	}
	return err
}

func (w *Writer) create(ctx context.Context, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	body := w.body(wanted, &unstructured.Unstructured{Object: map[string]any{}})
	body.SetManagedFields(nil)
	return w.at(body.GetNamespace()).Create(ctx, body, metav1.CreateOptions{FieldManager: fieldManager})
}

// body is wanted as an update of have: what the API sets itself is taken from
// have. It drops managedFields, which are written last: kube-apiserver keeps the
// time of an entry that changes in nothing else
// (apimachinery/pkg/util/managedfields, IgnoreManagedFieldsTimestampsTransformer),
// and cannot track the marker, which other versions do not have.
func (w *Writer) body(wanted, have *unstructured.Unstructured) *unstructured.Unstructured {
	body := &unstructured.Unstructured{Object: clone(wanted.Object)}
	metadata, had := clone(metadataOf(wanted)), metadataOf(have)
	for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} {
		delete(metadata, field)
		if value, ok := had[field]; ok {
			metadata[field] = value
		}
	}
	if w.tracks(wanted) {
		metadata["managedFields"] = unmanaged()
	}
	body.Object["metadata"] = metadata
	body.SetAPIVersion(w.Resource.GroupVersion().String())
	return body
}

// writeMain writes everything but status, in several steps where the generation has to rise.
func (w *Writer) writeMain(ctx context.Context, wanted, have *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	goal := wanted.GetGeneration()
	if wanted.GetDeletionTimestamp() != nil && have.GetDeletionTimestamp() == nil {
		goal-- // deleting counts as a change
	}
	for {
		body := w.body(wanted, have)
		left := goal - have.GetGeneration()
		same := w.sameMain(body, have)
		// Where the storage version prunes the marker, writing it is enough; else removing it is the last step.
		raising := w.Status && left <= MaxRaise && (left > 1 || left == 1 && same)
		if raising {
			body.Object[marker] = left
		}
		if same && !raising {
			return have, nil
		}
		written, err := w.at(body.GetNamespace()).Update(ctx, body, metav1.UpdateOptions{FieldManager: fieldManager})
		if err != nil || !raising {
			return written, err
		}
		if written.GetGeneration() <= have.GetGeneration() {
			return nil, fmt.Errorf("its generation does not rise: %w", ErrAltered)
		}
		have = written
	}
}

// sameMain says that writing body would change nothing but managedFields.
func (w *Writer) sameMain(body, have *unstructured.Unstructured) bool {
	return apiequality.Semantic.DeepEqual(w.main(body), w.main(have))
}

func (w *Writer) main(object *unstructured.Unstructured) map[string]any {
	content, metadata := clone(object.Object), clone(metadataOf(object))
	delete(metadata, "managedFields")
	content["metadata"] = metadata
	if w.Status {
		delete(content, "status")
	}
	return content
}

func (w *Writer) writeStatus(ctx context.Context, wanted, have *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if !w.Status || apiequality.Semantic.DeepEqual(wanted.Object["status"], have.Object["status"]) {
		return have, nil
	}
	body := w.body(wanted, have)
	return w.at(body.GetNamespace()).UpdateStatus(ctx, body, metav1.UpdateOptions{FieldManager: fieldManager})
}

// writeManagedFields makes an update that changes nothing else, so that no
// manager is added by it. Where times are kept, see body, it drops all first.
func (w *Writer) writeManagedFields(ctx context.Context, wanted, have *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	managed := metadataOf(wanted)["managedFields"]
	steps := []any{managed, unmanaged(), managed}
	switch {
	case managed == nil:
		steps = []any{unmanaged()}
	case !w.tracks(wanted):
		steps = []any{managed}
	}
	for _, step := range steps {
		if apiequality.Semantic.DeepEqual(managed, metadataOf(have)["managedFields"]) {
			break
		}
		body := have.DeepCopy()
		metadataOf(body)["managedFields"] = runtime.DeepCopyJSONValue(step)
		written, err := w.at(body.GetNamespace()).Update(ctx, body, metav1.UpdateOptions{FieldManager: fieldManager})
		if err != nil {
			return nil, err
		}
		have = written
	}
	return have, nil
}

// unmanaged is how a client drops all managedFields, and the tracking with them:
// one empty entry (apimachinery/pkg/util/managedfields).
func unmanaged() []any { return []any{map[string]any{}} }

// markDeleted begins the deletion of a copy whose finalizers keep it.
func (w *Writer) markDeleted(ctx context.Context, have *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	policy := metav1.DeletePropagationBackground
	switch {
	case slices.Contains(have.GetFinalizers(), metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	case slices.Contains(have.GetFinalizers(), metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	}
	uid := have.GetUID()
	copies := w.at(have.GetNamespace())
	err := copies.Delete(ctx, have.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if err != nil {
		return nil, err
	}
	return copies.Get(ctx, have.GetName(), metav1.GetOptions{})
}

// Delete removes a copy for good, finalizers notwithstanding. They stand for
// work that their owners do, or did, in annex. It is no error when it is gone.
// A copy with finalizers is deleted before they are taken off: one that has none
// and is not being deleted is therefore never a half deleted one.
func (w *Writer) Delete(ctx context.Context, have metav1.Object) error {
	uid, policy := have.GetUID(), metav1.DeletePropagationBackground
	copies := w.at(have.GetNamespace())
	if have.GetDeletionTimestamp() == nil {
		err := copies.Delete(ctx, have.GetName(), metav1.DeleteOptions{
			PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid},
		})
		if gone.Object(err, have.GetName()) || apierrors.IsConflict(err) {
			return nil // gone, or another one has its name
		}
		if err != nil {
			return err
		}
	}
	if len(have.GetFinalizers()) == 0 {
		return nil
	}
	// A patch, because the caller may know the metadata only.
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, uid)
	_, err := copies.Patch(ctx, have.GetName(), "application/merge-patch+json", []byte(patch), metav1.PatchOptions{FieldManager: fieldManager})
	if gone.Object(err, have.GetName()) || gone.Object(err, have.GetNamespace()) || apierrors.IsConflict(err) {
		return nil // or nobody can write to it, as its namespace is gone
	}
	return err
}
