// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeannex

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AnnexedGroup asks annex to adopt one API group. The object's name is the
// group. The meaning of every field is documented in the v1alpha1 package.
type AnnexedGroup struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   AnnexedGroupSpec
	Status AnnexedGroupStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AnnexedGroupList is a list of AnnexedGroups.
type AnnexedGroupList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []AnnexedGroup
}

// AnnexedGroupSpec is what the user wants for the group.
type AnnexedGroupSpec struct {
	// Resources is a map keyed by Resource.
	Resources []AnnexedResourceSpec
	// AllowProtectedGroup lifts the refusal of *.k8s.io and *.kubernetes.io groups
	// that no kube-apiserver serves itself, and of groups that clusters need in order to start.
	AllowProtectedGroup bool
	HostCopies          HostCopiesPolicy
	AllowNewUIDs        bool
	DiscardStrayWrites  bool
}

// HostCopiesPolicy says what happens to the copies that the cluster keeps.
type HostCopiesPolicy string

// The policies. The v1alpha1 package documents them.
const (
	HostCopiesRetain HostCopiesPolicy = "Retain"
	HostCopiesPurge  HostCopiesPolicy = "Purge"
)

// AnnexedResourceSpec names the indexes of one resource.
type AnnexedResourceSpec struct {
	// Resource is the plural name.
	Resource string
	// IndexLabels is a set of label keys.
	IndexLabels []string
	// WatchIndex is nil when watches of the resource are not dispatched by a value.
	WatchIndex *WatchIndex
}

// WatchIndex is a union: exactly one member is set.
type WatchIndex struct {
	Field string
	Label string
}

// AnnexedGroupPhase is one step of the way into annex or out of it.
type AnnexedGroupPhase string

// The phases, in the order of an adoption. The v1alpha1 package documents them.
const (
	PhasePending     AnnexedGroupPhase = "Pending"
	PhasePreflight   AnnexedGroupPhase = "Preflight"
	PhaseMirroring   AnnexedGroupPhase = "Mirroring"
	PhaseCopying     AnnexedGroupPhase = "Copying"
	PhaseCatchingUp  AnnexedGroupPhase = "CatchingUp"
	PhaseFencing     AnnexedGroupPhase = "Fencing"
	PhaseVerifying   AnnexedGroupPhase = "Verifying"
	PhaseCuttingOver AnnexedGroupPhase = "CuttingOver"
	PhaseUnfencing   AnnexedGroupPhase = "Unfencing"
	PhaseAnnexed     AnnexedGroupPhase = "Annexed"
	PhaseReleasing   AnnexedGroupPhase = "Releasing"

	PhaseReleaseFencing     AnnexedGroupPhase = "ReleaseFencing"
	PhaseReleaseVerifying   AnnexedGroupPhase = "ReleaseVerifying"
	PhaseReleaseCuttingOver AnnexedGroupPhase = "ReleaseCuttingOver"
	PhaseReleaseUnfencing   AnnexedGroupPhase = "ReleaseUnfencing"

	PhaseAborting AnnexedGroupPhase = "Aborting"
	PhaseAborted  AnnexedGroupPhase = "Aborted"
)

// ServingMode says how annex-apiserver answers requests for the group.
type ServingMode string

// The modes. The v1alpha1 package documents them.
const (
	ServingClosed   ServingMode = "Closed"
	ServingReadOnly ServingMode = "ReadOnly"
	ServingOpen     ServingMode = "Open"
	ServingReleased ServingMode = "Released"
)

// AnnexedGroupStatus is what annex has done so far. Only controllers write it.
type AnnexedGroupStatus struct {
	Phase AnnexedGroupPhase
	// Serving is ServingClosed when it is empty.
	Serving            ServingMode
	ObservedGeneration int64
	// Conditions is a map keyed by Type.
	Conditions []metav1.Condition
	// Resources is a map keyed by Resource.
	Resources []AnnexedResourceStatus
	// FenceDuration is nil until a fence has been lifted.
	FenceDuration *metav1.Duration
}

// AnnexedResourceStatus counts the objects of one resource.
type AnnexedResourceStatus struct {
	// Resource is the plural name.
	Resource string
	Objects  int64
	Bytes    int64
	Copied   int64
	Verified int64
	// Digest is of the verified objects, see package digest.
	Digest string
	// HostDigest is of the identities and revisions of the cluster's copies.
	HostDigest string
}
