// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=create
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ListReview asks where a LIST is served from and what it costs. It can only be
// created and is not stored: the answer is in the status of what the creation
// returns. A user may review only what he may list. A list that the server refuses
// is refused here with the same error.
type ListReview struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. It is not used.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the list, by its path or by its parts.
	// +required
	Spec ListReviewSpec `json:"spec"`
	// status is the answer.
	// +optional
	Status ListReviewStatus `json:"status,omitempty"`
}

// ListReviewSpec is a list request. Either path is set or resource is.
type ListReviewSpec struct {
	// path is the list as an HTTP client sends it, for example
	// "/apis/argoproj.io/v1alpha1/workflows?labelSelector=app%3Dx&limit=500".
	// +optional
	Path string `json:"path,omitempty"`
	// resource names what is listed.
	// +optional
	Resource *ListedResource `json:"resource,omitempty"`
	// options are the parameters of the list, beside resource.
	// +optional
	Options *ListReviewOptions `json:"options,omitempty"`
	// analyze also runs the list and reports what it really cost. The objects are not returned.
	// +optional
	Analyze bool `json:"analyze,omitempty"`
}

// ListedResource names what a list is of.
type ListedResource struct {
	// group is the API group, empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`
	// version is the version of the group.
	// +required
	Version string `json:"version"`
	// resource is the plural name.
	// +required
	Resource string `json:"resource"`
	// namespace confines the list to one namespace.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ListReviewOptions are the parameters of a list, as in metav1.ListOptions.
type ListReviewOptions struct {
	// labelSelector confines the list by labels.
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
	// fieldSelector confines the list by fields.
	// +optional
	FieldSelector string `json:"fieldSelector,omitempty"`
	// limit is the largest number of objects on a page.
	// +optional
	Limit int64 `json:"limit,omitempty"`
	// continue is the token of a page before.
	// +optional
	Continue string `json:"continue,omitempty"`
	// resourceVersion is the version that the list is at, or not older than.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// resourceVersionMatch says how resourceVersion is meant.
	// +optional
	ResourceVersionMatch metav1.ResourceVersionMatch `json:"resourceVersionMatch,omitempty"`
	// sendInitialEvents makes it a watch that begins with the objects that there are.
	// +optional
	SendInitialEvents *bool `json:"sendInitialEvents,omitempty"`
}

// ListSource says what a list is read from.
// +enum
type ListSource string

const (
	// ListSourceCache is the watch cache of the server.
	ListSourceCache ListSource = "Cache"
	// ListSourceEtcd is etcd.
	ListSourceEtcd ListSource = "Etcd"
	// ListSourceUnknown stands for a server that does not tell.
	ListSourceUnknown ListSource = "Unknown"
)

// ListServer says which server keeps the objects.
// +enum
type ListServer string

const (
	// ListServerAnnex is annex: the group is adopted, or annex runs alone.
	ListServerAnnex ListServer = "Annex"
	// ListServerHost is the cluster's kube-apiserver.
	ListServerHost ListServer = "Host"
)

// ListReviewStatus is where a list is served from and what it costs.
type ListReviewStatus struct {
	// path is the list as it was understood.
	// +optional
	Path string `json:"path,omitempty"`
	// server is the one that keeps the objects.
	// +optional
	Server ListServer `json:"server,omitempty"`
	// serverVersion is the version of a server other than annex.
	// +optional
	ServerVersion string `json:"serverVersion,omitempty"`
	// source is what the list is read from.
	// +optional
	Source ListSource `json:"source,omitempty"`
	// rule is the name of the rule that decided about the source. The reference page lists them.
	// +optional
	Rule string `json:"rule,omitempty"`
	// explanation is the rule in plain words.
	// +optional
	Explanation string `json:"explanation,omitempty"`
	// limitIgnored says that the list has a limit and is answered whole all the same.
	// +optional
	LimitIgnored bool `json:"limitIgnored,omitempty"`
	// index is the index that is read, "f:<path>" of a field, "l:<key>" of a label.
	// +optional
	Index string `json:"index,omitempty"`
	// estimate is what the list costs, as far as it can be told without running it.
	// +optional
	Estimate *ListCost `json:"estimate,omitempty"`
	// actual is what the list has cost when it was run.
	// +optional
	Actual *ListCost `json:"actual,omitempty"`
	// advice says how the same could be had for less, the best first.
	// +optional
	// +listType=atomic
	Advice []ListAdvice `json:"advice,omitempty"`
	// unknown says what could not be known, one sentence each.
	// +optional
	// +listType=atomic
	Unknown []string `json:"unknown,omitempty"`
}

// ListCost is what a list costs. What is not known is absent.
type ListCost struct {
	// total is the number of objects of the resource.
	// +optional
	Total *int64 `json:"total,omitempty"`
	// scanned is the number of objects that are compared with the selectors.
	// +optional
	Scanned *int64 `json:"scanned,omitempty"`
	// returned is the number of objects in the answer.
	// +optional
	Returned *int64 `json:"returned,omitempty"`
	// bytes is the size of the answer, as JSON and without compression.
	// +optional
	Bytes *int64 `json:"bytes,omitempty"`
	// seats is the number of seats that the list takes of its priority level.
	// +optional
	Seats *int64 `json:"seats,omitempty"`
	// duration is the time from the request to the end of the answer.
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// ListAdvice is one way to have the same for less.
type ListAdvice struct {
	// reason is a name for programs. The reference page lists them.
	// +required
	Reason string `json:"reason"`
	// message says what to do.
	// +required
	Message string `json:"message"`
}
