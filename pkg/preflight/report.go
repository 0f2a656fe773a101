// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight looks at a group of custom resources before it is adopted:
// what it consists of, who else has a hand in it and what speaks against the
// adoption. It only reads, with the credentials of its caller.
package preflight

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The apiVersion and kind that a printed Report carries.
const (
	ReportAPIVersion = "cli.kubeannex.io/v1alpha1"
	ReportKind       = "PreflightReport"
)

// Report is what Collect found. All lists are in a stable order.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Group is the API group that was looked at.
	Group string `json:"group"`
	// Resources are the group's resources, by name.
	Resources []Resource `json:"resources"`
	// APIServices are all versions of the group, by name.
	APIServices []APIService `json:"apiServices"`
	// Webhooks are the admission webhooks that are called for the group.
	Webhooks []Webhook `json:"webhooks,omitempty"`
	// Managers are the tools that manage the group's definitions or APIServices.
	Managers []Manager `json:"managers,omitempty"`
	// References are owner references from or to objects of the group, as far as
	// the objects that were looked at have any.
	References []Reference `json:"references,omitempty"`
	// Findings are refusals, then warnings, then the rest.
	Findings []Finding `json:"findings"`
}

// Resource is one resource of the group.
type Resource struct {
	// Name is the plural, such as "workflows".
	Name string `json:"name"`
	// Kind is the kind of its objects.
	Kind string `json:"kind"`
	// Scope is Namespaced or Cluster.
	Scope string `json:"scope"`
	// ServedVersions are the versions that clients can use.
	ServedVersions []string `json:"servedVersions"`
	// StorageVersion is the version that objects are stored in.
	StorageVersion string `json:"storageVersion"`
	// StoredVersions are all versions that etcd may still hold objects in.
	StoredVersions []string `json:"storedVersions,omitempty"`
	// Conversion is None or Webhook.
	Conversion string `json:"conversion"`
	// Counted is false when the objects could not be read; a finding says why.
	Counted bool `json:"counted"`
	// Objects is the number of objects.
	Objects int64 `json:"objects"`
	// EstimatedBytes is the size of all objects as JSON, reckoned from those looked at.
	EstimatedBytes int64 `json:"estimatedBytes"`
	// Sampled is the number of objects that were looked at. The rest speaks of these only.
	Sampled int64 `json:"sampled"`
	// InDeletion is the number of objects that are being deleted.
	InDeletion int64 `json:"inDeletion,omitempty"`
	// Finalizers are the finalizers that objects have.
	Finalizers []string `json:"finalizers,omitempty"`
}

// Route says who answers requests for a version.
type Route string

const (
	// RouteAutomanaged is kube-apiserver, which also keeps the APIService.
	RouteAutomanaged Route = "Automanaged"
	// RouteLocal is kube-apiserver, by an APIService that somebody else made.
	RouteLocal Route = "Local"
	// RouteAnnex is annex.
	RouteAnnex Route = "Annex"
	// RouteForeign is another aggregated API server.
	RouteForeign Route = "Foreign"
)

// APIService is one version of the group.
type APIService struct {
	// Name is that of the object, such as "v1.example.com".
	Name string `json:"name"`
	// Version is the API version.
	Version string `json:"version"`
	// Route says who answers.
	Route Route `json:"route"`
	// Service is "namespace/name" of the service, if there is one.
	Service string `json:"service,omitempty"`
	// Available is the status of the condition of that name.
	Available string `json:"available"`
}

// Webhook is one admission webhook that is called for objects of the group.
type Webhook struct {
	// Type is Validating or Mutating.
	Type string `json:"type"`
	// Configuration is the name of the object, Name that of the webhook in it.
	Configuration string `json:"configuration"`
	Name          string `json:"name"`
	// Resources are the group's resources that it is called for, "*" for all.
	Resources []string `json:"resources"`
	// FailurePolicy is Fail or Ignore.
	FailurePolicy string `json:"failurePolicy"`
	// Target is "service namespace/name" or a URL.
	Target string `json:"target"`
}

// Manager is a tool that manages one object which annex changes.
type Manager struct {
	// Tool is its name, such as "Helm".
	Tool string `json:"tool"`
	// Owner is what it manages the object as part of, such as "namespace/release".
	Owner string `json:"owner,omitempty"`
	// ObjectKind and ObjectName name what it manages.
	ObjectKind string `json:"objectKind"`
	ObjectName string `json:"objectName"`
}

// Reference is a kind of owner reference.
type Reference struct {
	// Owner and Dependent are "Kind.group", or "Kind" for the core group.
	Owner     string `json:"owner"`
	Dependent string `json:"dependent"`
	// Objects is the number of dependents among the Sampled ones that were looked at.
	Objects int64 `json:"objects"`
	Sampled int64 `json:"sampled"`
}

// Severity says what a finding means for the adoption.
type Severity string

const (
	// SeverityRefusal keeps the group from being adopted.
	SeverityRefusal Severity = "Refusal"
	// SeverityWarning is likely to hurt.
	SeverityWarning Severity = "Warning"
	// SeverityInfo is good to know.
	SeverityInfo Severity = "Info"
)

// The checks that findings come from, in the order they are reported in.
const (
	CheckGroup       = "Group"
	CheckIndexes     = "Indexes"
	CheckStartUp     = "StartUp"
	CheckDefinitions = "Definitions"
	CheckAPIServices = "APIServices"
	CheckObjects     = "Objects"
	CheckConversion  = "Conversion"
	CheckWebhooks    = "Webhooks"
	CheckManagers    = "Managers"
	CheckReferences  = "References"
	CheckAnnex       = "Annex"
)

// Finding is one thing to know.
type Finding struct {
	Severity Severity `json:"severity"`
	// Check is one of the Check constants.
	Check string `json:"check"`
	// Message is one line: what was found and, where something is wrong, how to mend it.
	Message string `json:"message"`
}

// Refusals returns the findings that keep the group from being adopted.
func (r *Report) Refusals() []Finding {
	var refusals []Finding
	for _, finding := range r.Findings {
		if finding.Severity == SeverityRefusal {
			refusals = append(refusals, finding)
		}
	}
	return refusals
}

// sortFindings puts refusals first. Within a severity findings stay in the order
// in which they were added, which is that of the checks.
func (r *Report) sortFindings() {
	order := []Severity{SeverityRefusal, SeverityWarning, SeverityInfo}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})
}
