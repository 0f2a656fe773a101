// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcopy

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeannex/annex/pkg/digest"
)

// Form is what is compared of an object of annex and its copy.
type Form struct {
	// Content is everything that can be written back exactly: all but what the
	// other fields tell, the version, and when it was created and deleted.
	Content digest.Entry
	// Managed is managedFields.
	Managed digest.Entry
	// Generation is metadata.generation. It can be raised, see MaxRaise, not lowered.
	Generation int64
}

// Matches says that nothing has to be written to make the copy what is wanted.
// Status says that the resource has a status subresource, see Writer.
func (f Form) Matches(wanted Form, status bool) bool {
	lag := wanted.Generation - f.Generation
	raisable := status && lag > 0 && lag <= MaxRaise
	return f.Content == wanted.Content && f.Managed == wanted.Managed && !raisable
}

// FormOf returns the form of an object. The object is not changed.
func FormOf(object *unstructured.Unstructured) (Form, error) {
	form := Form{Generation: object.GetGeneration()}
	content, metadata := clone(object.Object), clone(metadataOf(object))
	managed := map[string]any{"managedFields": metadata["managedFields"]}
	for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "deletionGracePeriodSeconds", "selfLink"} {
		delete(metadata, field)
	}
	if _, deleted := metadata["deletionTimestamp"]; deleted {
		metadata["deletionTimestamp"] = true
	}
	delete(content, "apiVersion")
	content["metadata"] = metadata
	var err error
	if form.Content, err = digest.OfObject(content); err != nil {
		return Form{}, err
	}
	form.Managed, err = digest.OfObject(managed)
	return form, err
}

func metadataOf(object *unstructured.Unstructured) map[string]any {
	metadata, _ := object.Object["metadata"].(map[string]any)
	return metadata
}

// clone copies one level.
func clone(object map[string]any) map[string]any {
	copied := make(map[string]any, len(object)+1)
	maps.Copy(copied, object)
	return copied
}

// Owners maps UIDs that objects have in annex to those of their copies. UIDs
// that stay the same are not in it.
type Owners map[types.UID]types.UID

// Wanted is what the copy of an object of annex has to be: the same, with owners
// named by the UIDs that they have in the cluster. The object is not changed.
func Wanted(object *unstructured.Unstructured, owners Owners) *unstructured.Unstructured {
	references := object.GetOwnerReferences()
	changed := false
	for i := range references {
		if uid, ok := owners[references[i].UID]; ok {
			references[i].UID, changed = uid, true
		}
	}
	if !changed {
		return object
	}
	wanted := &unstructured.Unstructured{Object: clone(object.Object)}
	wanted.Object["metadata"] = clone(metadataOf(object))
	wanted.SetOwnerReferences(references)
	return wanted
}
