// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/url"
	"slices"

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
	// Config is that of a user who may do everything, see grantUsers, without a limit of
	// requests. Callers copy it before they change it.
	Config *rest.Config
	// Group is the API group of the kinds on this side.
	Group string
	// Processes are the servers that a request goes through and that keep what it is about, databases included.
	Processes []*env.Process
	// Reviewers are those that are asked only who may do what.
	Reviewers []*env.Process
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

// PIDs are the ids of all that work for a request on this side, Processes and
// Reviewers, in their present lives.
func (s Side) PIDs() []int {
	var pids []int
	for _, process := range slices.Concat(s.Processes, s.Reviewers) {
		pids = append(pids, process.PID())
	}
	return pids
}
