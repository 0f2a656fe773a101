// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=get,list
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ListProfile is what one kind of reads of one client has cost the processes of
// annex-apiserver since it was first seen. Each process keeps its own in memory, a
// bounded number of them, and begins anew when it is started. Those that had to make
// room for others are added up, one sum for each verb and resource, whose client is
// "(others)". They cannot be written.
type ListProfile struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name is a digest of what tells one
	// profile from another: all fields that are no numbers, but for clientVersion
	// and lastSeen. The creationTimestamp is that of the first request.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// profile is the row.
	// +optional
	Profile ListProfileRow `json:"profile,omitempty"`
}

// ListProfileRow is one kind of reads and what it has cost.
type ListProfileRow struct {
	// client is the family of user agents, without version and host, for example "kubelet".
	// +optional
	Client string `json:"client,omitempty"`
	// clientVersion is the version in the user agent of the last request, for example "v1.37.2".
	// +optional
	ClientVersion string `json:"clientVersion,omitempty"`
	// user is the name of the user. All nodes are one, "system:node:*".
	// +optional
	User string `json:"user,omitempty"`
	// verb is get, list or watch.
	// +optional
	Verb string `json:"verb,omitempty"`
	// group is the API group.
	// +optional
	Group string `json:"group,omitempty"`
	// version is the version of the group.
	// +optional
	Version string `json:"version,omitempty"`
	// resource is the plural name, of a subresource with that, for example "widgets/status".
	// +optional
	Resource string `json:"resource,omitempty"`
	// selector is the shape of the selectors, without values, for example
	// "namespace,app=,spec.nodeName=".
	// +optional
	Selector string `json:"selector,omitempty"`
	// source is what the reads were served from.
	// +optional
	Source ListSource `json:"source,omitempty"`
	// index is the index that was read, "f:<path>" of a field, "l:<key>" of a label.
	// +optional
	Index string `json:"index,omitempty"`
	// count is the number of requests.
	// +optional
	Count int64 `json:"count,omitempty"`
	// failed is how many of them were answered with an error or broken off.
	// +optional
	Failed int64 `json:"failed,omitempty"`
	// scanned is the number of objects that were compared with selectors or
	// returned. Watches do not count them.
	// +optional
	Scanned int64 `json:"scanned,omitempty"`
	// returned is the number of objects in the answers. Watches do not count them.
	// +optional
	Returned int64 `json:"returned,omitempty"`
	// bytes is the size of the answers, as they left the server.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// lastSeen is the time of the last request.
	// +optional
	LastSeen metav1.Time `json:"lastSeen,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ListProfileList is a list of ListProfiles, the one that scanned the most first.
type ListProfileList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// replica is the name of the process that answers.
	// +optional
	Replica string `json:"replica,omitempty"`
	// replicas are the names of all processes whose reads are added up, the one that
	// answers first.
	// +optional
	// +listType=atomic
	Replicas []string `json:"replicas,omitempty"`
	// missing are the names of the processes that are known but whose reads are not
	// in the list. A warning says why.
	// +optional
	// +listType=atomic
	Missing []string `json:"missing,omitempty"`
	// since is when the first of the replicas began to count.
	// +optional
	Since metav1.Time `json:"since,omitempty"`
	// dropped is the number of profiles that had to make room for others. What
	// they had is in the profiles whose client is "(others)".
	// +optional
	Dropped int64 `json:"dropped,omitempty"`
	// items are the profiles.
	// +required
	Items []ListProfile `json:"items"`
}
