// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// metadata is the part of metav1.ObjectMeta that caches look at. The whole of it would take 250
// bytes of every object. What it does not have reads as absent, and setting it does nothing.
type metadata struct {
	name, namespace string
	uid             types.UID
	// annotations are those of a bookmark.
	annotations map[string]string
}

// The methods are those of metav1.Object.

func (m *metadata) GetName() string                             { return m.name }
func (m *metadata) SetName(name string)                         { m.name = name }
func (m *metadata) GetNamespace() string                        { return m.namespace }
func (m *metadata) SetNamespace(namespace string)               { m.namespace = namespace }
func (m *metadata) GetUID() types.UID                           { return m.uid }
func (m *metadata) SetUID(uid types.UID)                        { m.uid = uid }
func (m *metadata) GetAnnotations() map[string]string           { return m.annotations }
func (m *metadata) SetAnnotations(values map[string]string)     { m.annotations = values }
func (*metadata) GetGenerateName() string                       { return "" }
func (*metadata) SetGenerateName(string)                        {}
func (*metadata) GetGeneration() int64                          { return 0 }
func (*metadata) SetGeneration(int64)                           {}
func (*metadata) GetSelfLink() string                           { return "" }
func (*metadata) SetSelfLink(string)                            {}
func (*metadata) GetCreationTimestamp() metav1.Time             { return metav1.Time{} }
func (*metadata) SetCreationTimestamp(metav1.Time)              {}
func (*metadata) GetDeletionTimestamp() *metav1.Time            { return nil }
func (*metadata) SetDeletionTimestamp(*metav1.Time)             {}
func (*metadata) GetDeletionGracePeriodSeconds() *int64         { return nil }
func (*metadata) SetDeletionGracePeriodSeconds(*int64)          {}
func (*metadata) GetLabels() map[string]string                  { return nil }
func (*metadata) SetLabels(map[string]string)                   {}
func (*metadata) GetFinalizers() []string                       { return nil }
func (*metadata) SetFinalizers([]string)                        {}
func (*metadata) GetOwnerReferences() []metav1.OwnerReference   { return nil }
func (*metadata) SetOwnerReferences([]metav1.OwnerReference)    {}
func (*metadata) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }
func (*metadata) SetManagedFields([]metav1.ManagedFieldsEntry)  {}
