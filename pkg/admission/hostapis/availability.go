// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostapis reads objects of the cluster whose API the cluster may lack: an
// older one does not serve all that the plug-ins of this version ask for. What is
// missing has no objects, so the plug-in that lives on them does nothing, and it is
// looked for again and again, because clusters are upgraded.
//
//	list v1 ──404──► does discovery name it? ──yes──► error, as with any other failure
//	                          │ no
//	                 list v1beta1, where upstream had one
//	                          │ 404, and discovery does not name it
//	                 empty list, plug-in disabled ──after recheck──► list v1
//
// A cluster that does not answer lacks nothing: the informer is not synced then, and
// the server not ready.
package hostapis

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// The plug-ins that live on an API that a cluster may lack.
const (
	MutatingAdmissionPolicy   = "MutatingAdmissionPolicy"
	ValidatingAdmissionPolicy = "ValidatingAdmissionPolicy"
	PriorityAndFairness       = "PriorityAndFairness"
)

// Disabled is a plug-in that does nothing, because the cluster has no API for the objects it lives on.
type Disabled struct {
	Plugin string
	// Resources are what the cluster lacks, in the newest version that was asked for.
	Resources []schema.GroupVersionResource
}

// Availability knows what the cluster lacks. The zero value is not usable.
type Availability struct {
	// mu guards missing.
	mu sync.Mutex
	// missing holds what each plug-in lacks.
	missing map[string]map[schema.GroupVersionResource]struct{}
	// disabled is replaced and never changed, so that every request may look at it.
	disabled atomic.Pointer[[]Disabled]
}

// NewAvailability returns one that lacks nothing.
func NewAvailability() *Availability {
	a := &Availability{missing: map[string]map[schema.GroupVersionResource]struct{}{}}
	a.disabled.Store(&[]Disabled{})
	return a
}

// Disabled returns the plug-ins that the cluster cannot feed, by name. The caller must not change them.
func (a *Availability) Disabled() []Disabled { return *a.disabled.Load() }

// Lacks returns whether the cluster cannot feed a plug-in.
func (a *Availability) Lacks(plugin string) bool {
	return slices.ContainsFunc(a.Disabled(), func(d Disabled) bool { return d.Plugin == plugin })
}

// set notes whether the cluster serves a resource. It logs when that switches a plug-in off or on.
func (a *Availability) set(logger klog.Logger, plugin string, resource schema.GroupVersionResource, served bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.missing[plugin])
	if served {
		delete(a.missing[plugin], resource)
	} else {
		if a.missing[plugin] == nil {
			a.missing[plugin] = map[schema.GroupVersionResource]struct{}{}
		}
		a.missing[plugin][resource] = struct{}{}
	}
	after := len(a.missing[plugin])
	if before == after {
		return
	}
	a.publishLocked()
	switch {
	case before == 0:
		logger.Info("Switched off a plug-in whose API the cluster does not serve: upgrade the cluster or enable the API, which is looked for again",
			"plugin", plugin, "missing", resource.String())
	case after == 0:
		logger.Info("Switched on a plug-in whose API the cluster serves now", "plugin", plugin)
	}
}

func (a *Availability) publishLocked() {
	disabled := []Disabled{}
	for plugin, resources := range a.missing {
		if len(resources) == 0 {
			continue
		}
		d := Disabled{Plugin: plugin}
		for resource := range resources {
			d.Resources = append(d.Resources, resource)
		}
		slices.SortFunc(d.Resources, func(x, y schema.GroupVersionResource) int { return strings.Compare(x.String(), y.String()) })
		disabled = append(disabled, d)
	}
	slices.SortFunc(disabled, func(x, y Disabled) int { return strings.Compare(x.Plugin, y.Plugin) })
	a.disabled.Store(&disabled)
}
