// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AnnexedGroup asks annex to adopt one API group of custom resources: to serve
// it from annex's own storage instead of the cluster's. The object's name is the
// group, for example "argoproj.io". Creating the object starts the adoption,
// deleting it releases the group back to the cluster.
type AnnexedGroup struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. Its name must be the API group to adopt.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which indexes the group's resources get.
	// +optional
	Spec AnnexedGroupSpec `json:"spec,omitempty"`
	// status says how far the adoption or release has come. It is written by
	// annex and can only be changed through the status subresource.
	// +optional
	Status AnnexedGroupStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AnnexedGroupList is a list of AnnexedGroups.
type AnnexedGroupList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the AnnexedGroups.
	// +required
	Items []AnnexedGroup `json:"items"`
}

// AnnexedGroupSpec is what the user wants for the group. All resources of the
// group are adopted, whether they are listed here or not.
type AnnexedGroupSpec struct {
	// resources names extra indexes, one entry for each resource that needs any.
	// A resource without an entry still has an index for every selectableFields
	// entry of its CustomResourceDefinition.
	// +optional
	// +listType=map
	// +listMapKey=resource
	// +patchMergeKey=resource
	// +patchStrategy=merge
	Resources []AnnexedResourceSpec `json:"resources,omitempty" patchStrategy:"merge" patchMergeKey:"resource"`
	// allowProtectedGroup confirms that a community-owned group, one that is or
	// ends in ".k8s.io" or ".kubernetes.io", or a group that clusters need in order
	// to start, such as "cilium.io", is really to be adopted. Without it such a
	// group is refused. Groups that kube-apiserver serves itself, such as "apps" or
	// "rbac.authorization.k8s.io", are refused in any case.
	// +optional
	AllowProtectedGroup bool `json:"allowProtectedGroup,omitempty"`
	// hostCopies says what happens to the copies that the cluster's own etcd keeps
	// of adopted objects. Retain, the default, keeps them: a release then gives
	// every object its UID back. Purge deletes them once the group is annexed,
	// which frees the cluster's etcd and cannot be undone. It is refused while the
	// copies are not what was verified at the adoption.
	// +optional
	HostCopies HostCopiesPolicy `json:"hostCopies,omitempty"`
	// allowNewUIDs lets a release give new UIDs to objects that the cluster has no
	// copy of: those created in annex, and all of them after a purge. Owner
	// references of their dependents are repaired. Without it such a release is refused.
	// +optional
	AllowNewUIDs bool `json:"allowNewUIDs,omitempty"`
	// discardStrayWrites says that the changes which the condition StrayWrites names
	// have been looked at. A release overwrites or deletes copies in the cluster that
	// were changed after they were verified; without it such a release is refused and
	// annex goes on serving the group.
	// +optional
	DiscardStrayWrites bool `json:"discardStrayWrites,omitempty"`
}

// HostCopiesPolicy says what happens to the copies that the cluster keeps.
// +enum
type HostCopiesPolicy string

const (
	// HostCopiesRetain keeps the copies.
	HostCopiesRetain HostCopiesPolicy = "Retain"
	// HostCopiesPurge deletes the copies once the group is annexed.
	HostCopiesPurge HostCopiesPolicy = "Purge"
)

// AnnexedResourceSpec names the indexes of one resource. The entries of
// indexLabels and the watchIndex together may name at most 8 different indexes;
// a label that stands in both counts once. The selectable fields of the
// CustomResourceDefinition come on top: this object does not know them, so the
// server counts them when it opens the resource.
type AnnexedResourceSpec struct {
	// resource is the plural name of the resource, for example "workflows".
	// +required
	Resource string `json:"resource"`
	// indexLabels are the label keys whose values are indexed, so that a LIST
	// with a selector such as "app=nginx" reads only the objects that match.
	// +optional
	// +listType=set
	IndexLabels []string `json:"indexLabels,omitempty"`
	// watchIndex is the one field or label that watches are dispatched by: a
	// watch that selects one value of it is only woken by events of objects that
	// have that value. Without it the first selectable field is taken, if there is one.
	// +optional
	WatchIndex *WatchIndex `json:"watchIndex,omitempty"`
}

// WatchIndex names a field or a label. Exactly one of the two must be set.
type WatchIndex struct {
	// field is the path of a field as a field selector writes it, for example
	// "spec.nodeName". It must be "metadata.name", "metadata.namespace" or one of
	// the selectableFields of the CustomResourceDefinition.
	// +optional
	Field string `json:"field,omitempty"`
	// label is a label key, for example "app.kubernetes.io/name".
	// +optional
	Label string `json:"label,omitempty"`
}

// AnnexedGroupPhase is one step of the way into annex or out of it. Up to and
// including Verifying the cluster holds the truth and an abort leaves no trace;
// from CuttingOver on annex holds it and the way back is a release.
// +enum
type AnnexedGroupPhase string

const (
	// PhasePending means that the controller has not looked at the object yet.
	PhasePending AnnexedGroupPhase = "Pending"
	// PhasePreflight means that the conditions of an adoption are being checked.
	// A failed check stays here and is named in the conditions.
	PhasePreflight AnnexedGroupPhase = "Preflight"
	// PhaseMirroring means that the CustomResourceDefinitions are being copied to
	// annex. They stay mirrored until the group is released.
	PhaseMirroring AnnexedGroupPhase = "Mirroring"
	// PhaseCopying means that the objects are being copied at one revision.
	PhaseCopying AnnexedGroupPhase = "Copying"
	// PhaseCatchingUp means that changes made since that revision are being followed.
	PhaseCatchingUp AnnexedGroupPhase = "CatchingUp"
	// PhaseFencing means that writes are being held back on every kube-apiserver
	// and the last changes are drained. Reads still come from the cluster.
	PhaseFencing AnnexedGroupPhase = "Fencing"
	// PhaseVerifying means that every copy is compared with its source, fence held.
	PhaseVerifying AnnexedGroupPhase = "Verifying"
	// PhaseCuttingOver means that requests are being routed to annex, fence held.
	// Annex answers reads of the group from here on.
	PhaseCuttingOver AnnexedGroupPhase = "CuttingOver"
	// PhaseUnfencing means that all requests reach annex and the fence is being lifted.
	PhaseUnfencing AnnexedGroupPhase = "Unfencing"
	// PhaseAnnexed means that annex serves the group, reads and writes.
	PhaseAnnexed AnnexedGroupPhase = "Annexed"
	// PhaseReleasing means that the group is on its way back: objects that changed
	// in annex are being written to the cluster's copies. Annex still serves the group.
	PhaseReleasing AnnexedGroupPhase = "Releasing"
	// PhaseReleaseFencing means that writes are being held back on every replica of
	// annex and the last changes are written to the cluster's copies.
	PhaseReleaseFencing AnnexedGroupPhase = "ReleaseFencing"
	// PhaseReleaseVerifying means that the cluster's copies are compared with annex, fence held.
	PhaseReleaseVerifying AnnexedGroupPhase = "ReleaseVerifying"
	// PhaseReleaseCuttingOver means that requests are being routed to the cluster
	// and that clients of annex are told to list again.
	PhaseReleaseCuttingOver AnnexedGroupPhase = "ReleaseCuttingOver"
	// PhaseReleaseUnfencing means that the cluster serves the group again and annex's
	// data of it are being removed. The object disappears at the end of it.
	PhaseReleaseUnfencing AnnexedGroupPhase = "ReleaseUnfencing"
	// PhaseAborting means that an adoption is being undone before cut-over.
	PhaseAborting AnnexedGroupPhase = "Aborting"
	// PhaseAborted means that the adoption was undone; the cluster serves the group
	// as before. Changing the spec or deleting the object are the ways on.
	PhaseAborted AnnexedGroupPhase = "Aborted"
)

// ServingMode says how annex-apiserver answers requests for the resources of
// an adopted group. Never is existing data answered with 404 or an empty list.
// +enum
type ServingMode string

const (
	// ServingClosed answers everything with 503 and Retry-After: the copy is not
	// complete. Only then the group's data can be imported.
	ServingClosed ServingMode = "Closed"
	// ServingReadOnly answers reads, and writes with 429 and Retry-After.
	ServingReadOnly ServingMode = "ReadOnly"
	// ServingOpen answers reads and writes.
	ServingOpen ServingMode = "Open"
	// ServingReleased ends watches with 410, answers new ones with 410 and
	// everything else with 429 and Retry-After: clients have to list again, at the cluster.
	ServingReleased ServingMode = "Released"
)

// The types of conditions.
const (
	// ConditionPreflightPassed says whether the group can be adopted, and if not, why.
	ConditionPreflightPassed = "PreflightPassed"
	// ConditionProgressing says whether the present step goes on, and if not, what holds it up.
	ConditionProgressing = "Progressing"
	// ConditionAnnexed is true when annex serves the group, reads and writes.
	ConditionAnnexed = "Annexed"
	// ConditionMirrored says whether annex has the cluster's present definitions.
	ConditionMirrored = "Mirrored"
	// ConditionAdmissionComplete is false while a part of admission, or priority and fairness, is off
	// in annex because the cluster does not serve its API. The message names it.
	ConditionAdmissionComplete = "AdmissionComplete"
	// ConditionStorageSpace is true while the etcd that stores the group has room below its quota. Before it
	// is full the condition is false and the message says how to make room. It is unknown when no replica
	// can tell.
	ConditionStorageSpace = "StorageSpace"
	// ConditionStrayWrites is true when the cluster's own copies changed after they
	// were verified. The message names them.
	ConditionStrayWrites = "StrayWrites"
	// ConditionHostCopiesPurged is true when the cluster keeps no copies.
	ConditionHostCopiesPurged = "HostCopiesPurged"
)

// Reasons of conditions that clients act on.
const (
	// ReasonNewUIDsNeeded is why ConditionProgressing is false while a release waits for spec.allowNewUIDs.
	ReasonNewUIDsNeeded = "NewUIDsNeeded"
	// ReasonStrayWrites is why ConditionProgressing is false while a release waits for spec.discardStrayWrites.
	ReasonStrayWrites = "StrayWrites"
	// ReasonPurging is why ConditionHostCopiesPurged is false while the copies are
	// being deleted. With any other reason the purge is refused.
	ReasonPurging = "Purging"
	// ReasonWatching is the reason of ConditionStrayWrites until a request of before
	// the cut-over can no longer be late. Until then nothing is released or purged.
	ReasonWatching = "Watching"
)

// Names that annex puts on objects of the cluster.
const (
	// ReleaseFinalizer keeps an AnnexedGroup until the group is released or its adoption undone.
	ReleaseFinalizer = "kubeannex.io/release"
	// DefinitionFinalizer keeps a CustomResourceDefinition of the cluster until annex has deleted its objects.
	DefinitionFinalizer = "kubeannex.io/annexed"
	// PrivateVersion is the version by which annex reaches the cluster's own copies of an adopted group.
	PrivateVersion = "v0annex"
)

// AnnexedGroupStatus is what annex has done so far.
type AnnexedGroupStatus struct {
	// phase is the step that the adoption or release is in. The server sets
	// Pending when the object is created.
	// +optional
	Phase AnnexedGroupPhase `json:"phase,omitempty"`
	// serving says how annex answers requests for the group. Empty means Closed.
	// +optional
	Serving ServingMode `json:"serving,omitempty"`
	// observedGeneration is the metadata.generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions say in words what holds, what failed and how to mend it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchMergeKey=type
	// +patchStrategy=merge
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
	// resources count the objects of every resource of the group.
	// +optional
	// +listType=map
	// +listMapKey=resource
	// +patchMergeKey=resource
	// +patchStrategy=merge
	Resources []AnnexedResourceStatus `json:"resources,omitempty" patchStrategy:"merge" patchMergeKey:"resource"`
	// fenceDuration is how long the last fence held writes back. It is absent
	// until a fence has been lifted.
	// +optional
	FenceDuration *metav1.Duration `json:"fenceDuration,omitempty"`
}

// AnnexedResourceStatus counts the objects of one resource. During an adoption
// the source is the cluster and the copy is in annex, during a release the other
// way round.
type AnnexedResourceStatus struct {
	// resource is the plural name of the resource.
	// +required
	Resource string `json:"resource"`
	// objects is the number of objects at the source.
	// +optional
	Objects int64 `json:"objects,omitempty"`
	// bytes is the size of those objects as they are stored, in bytes.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// copied is the number of objects that have a copy.
	// +optional
	Copied int64 `json:"copied,omitempty"`
	// verified is the number of objects whose copy was compared and found equal
	// while the fence held.
	// +optional
	Verified int64 `json:"verified,omitempty"`
	// digest is the digest of all objects at the last verification, without their
	// resource versions and independent of their order.
	// +optional
	Digest string `json:"digest,omitempty"`
	// hostDigest is the digest of names, UIDs and resource versions of the cluster's
	// own copies at the last verification. While it holds nobody has changed them.
	// +optional
	HostDigest string `json:"hostDigest,omitempty"`
}
