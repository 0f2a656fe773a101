// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/env"
)

// The names of the sides, in the order of the columns of every table.
const (
	// SideHost is kube-apiserver with a custom resource of its own. All ratios are to it.
	SideHost = "host"
	// SideAnnex is annex at its own address.
	SideAnnex = "annex"
	// SideAggregated is annex the way clients of a cluster reach it: through kube-apiserver.
	SideAggregated = "aggregated"
)

// Side is one way in which the same objects are served.
type Side struct {
	// Name is one of the constants above, or one that a scenario made for itself.
	Name string
	// Config is that of an administrator, without a limit of requests. Callers copy it before they change it.
	Config *rest.Config
	// Group is the API group of the kinds on this side.
	Group string
	// Processes are all servers that work for a request on this side, databases included.
	Processes []*env.Process
}

// Resource names one kind on this side, for dynamic clients.
func (s Side) Resource(kind dataset.Kind) schema.GroupVersionResource {
	return dataset.Resource(s.Group, kind)
}

// URL returns the address of a LIST of a selection. Extra query parameters, such
// as resourceVersion, may be nil.
func (s Side) URL(kind dataset.Kind, selection dataset.Selection, extra url.Values) string {
	return s.Config.Host + selection.Path(s.Group, dataset.Version, kind, extra)
}

// PIDs are the ids of Processes in their present lives.
func (s Side) PIDs() []int {
	pids := make([]int, len(s.Processes))
	for i, process := range s.Processes {
		pids[i] = process.PID()
	}
	return pids
}
