// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeannex

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ListReview asks where a LIST is served from and what it costs. It can only be
// created and is not stored: the answer is in the status of what the creation
// returns. A user may review only what he may list. A list that the server refuses
// is refused here with the same error.
type ListReview struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   ListReviewSpec
	Status ListReviewStatus
}

// ListReviewSpec is a list request. Either path is set or resource is.
type ListReviewSpec struct {
	Path     string
	Resource *ListedResource
	Options  *ListReviewOptions
	Analyze  bool
}

// ListedResource names what a list is of.
type ListedResource struct {
	Group     string
	Version   string
	Resource  string
	Namespace string
}

// ListReviewOptions are the parameters of a list, as in metav1.ListOptions.
type ListReviewOptions struct {
	LabelSelector        string
	FieldSelector        string
	Limit                int64
	Continue             string
	ResourceVersion      string
	ResourceVersionMatch metav1.ResourceVersionMatch
	SendInitialEvents    *bool
}

// ListSource says what a list is read from.
type ListSource string

// The sources. The v1alpha1 package documents them.
const (
	ListSourceCache   ListSource = "Cache"
	ListSourceEtcd    ListSource = "Etcd"
	ListSourceUnknown ListSource = "Unknown"
)

// ListServer says which server keeps the objects.
type ListServer string

// The servers. The v1alpha1 package documents them.
const (
	ListServerAnnex ListServer = "Annex"
	ListServerHost  ListServer = "Host"
)

// ListReviewStatus is where a list is served from and what it costs.
type ListReviewStatus struct {
	Path          string
	Server        ListServer
	ServerVersion string
	Source        ListSource
	Rule          string
	Explanation   string
	LimitIgnored  bool
	Index         string
	Estimate      *ListCost
	Actual        *ListCost
	Advice        []ListAdvice
	Unknown       []string
}

// ListCost is what a list costs. What is not known is absent.
type ListCost struct {
	Total    *int64
	Scanned  *int64
	Returned *int64
	Bytes    *int64
	Seats    *int64
	Duration *metav1.Duration
}

// ListAdvice is one way to have the same for less.
type ListAdvice struct {
	Reason  string
	Message string
}
