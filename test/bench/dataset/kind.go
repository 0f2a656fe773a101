// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// HostGroup is the group whose definitions and objects are on the host.
	HostGroup = "host.bench.annex.test"
	// AnnexedGroup is the group that annex serves.
	AnnexedGroup = "annexed.bench.annex.test"

	// Version is the version in which objects are created and stored.
	Version = "v1"
	// OldVersion is the other version of definitions with two. Its schema is that of
	// Version, so it needs no conversion but apiVersion.
	OldVersion = "v1beta1"

	// NodeField is the selectable field of every kind.
	NodeField = "spec.nodeName"
	// AppLabel has one of Apps values, spread evenly.
	AppLabel = "app"
	// NodeLabel has the value of NodeField: it selects as few objects by label.
	NodeLabel = "node"
	// TeamLabel has the namespace as its value.
	TeamLabel = "team"

	// Apps is the number of values of AppLabel.
	Apps = 100
)

// Kind is one of the three kinds of objects. The zero value is Endpoints.
type Kind int

const (
	// Endpoints are many and small: what a node agent keeps of a pod.
	Endpoints Kind = iota
	// Reports are what a scanner finds out about a pod: one long list.
	Reports
	// Flows are runs of pipelines: a map of steps, which managedFields repeat.
	Flows
)

const (
	kibibyte = 1024
	// reportBytes and flowBytes are 100 KB and 0.5 MB.
	reportBytes = 100 * kibibyte
	flowBytes   = 512 * kibibyte
)

// Kinds are all kinds, in the order of their sizes.
func Kinds() []Kind { return []Kind{Endpoints, Reports, Flows} }

// Resource is the plural name in paths.
func (k Kind) Resource() string { return [...]string{"endpoints", "reports", "flows"}[k] }

// String is the plural name.
func (k Kind) String() string { return k.Resource() }

// Singular is the singular name.
func (k Kind) Singular() string { return [...]string{"endpoint", "report", "flow"}[k] }

// Name is the name of the kind in apiVersion and kind.
func (k Kind) Name() string { return [...]string{"Endpoint", "Report", "Flow"}[k] }

// Bytes is the size of an object in JSON as a server returns it, managedFields
// included. Objects differ from it by less than a tenth.
func (k Kind) Bytes() int { return [...]int{1536, reportBytes, flowBytes}[k] }

// Manager is the field manager of the objects, as the controller of the kind
// would leave it.
func (k Kind) Manager() string {
	return [...]string{"endpoint-agent", "report-scanner", "flow-controller"}[k]
}

// Resource names a resource of a group, for dynamic clients.
func Resource(group string, kind Kind) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: Version, Resource: kind.Resource()}
}

// CollectionPath is the path of all objects of a kind, or of a namespace.
func CollectionPath(group, version string, kind Kind, namespace string) string {
	if namespace == "" {
		return fmt.Sprintf("/apis/%s/%s/%s", group, version, kind.Resource())
	}
	return fmt.Sprintf("/apis/%s/%s/namespaces/%s/%s", group, version, namespace, kind.Resource())
}
