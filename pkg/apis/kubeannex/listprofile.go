// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeannex

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ListProfile is what one kind of reads of one client has cost the processes of
// annex-apiserver since it was first seen. Each process keeps its own in memory, a
// bounded number of them, and begins anew when it is started. Those that had to make
// room for others are added up, one sum for each verb and resource, whose client is
// "(others)". They cannot be written.
type ListProfile struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Profile ListProfileRow
}

// ListProfileRow is one kind of reads and what it has cost.
type ListProfileRow struct {
	Client        string
	ClientVersion string
	User          string
	Verb          string
	Group         string
	Version       string
	Resource      string
	Selector      string
	Source        ListSource
	Index         string
	Count         int64
	Failed        int64
	Scanned       int64
	Returned      int64
	Bytes         int64
	LastSeen      metav1.Time
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ListProfileList is a list of ListProfiles, the one that scanned the most first.
type ListProfileList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Replica  string
	Replicas []string
	Missing  []string
	Since    metav1.Time
	Dropped  int64
	Items    []ListProfile
}
