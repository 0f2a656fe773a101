// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// watchInterest counts the watches that an event of a write is offered to. Upstream's tracker, which it hands
// on to, knows one resource only whose events are dispatched by a value (k8s.io/apiserver
// pkg/util/flowcontrol/watch_tracker.go), and takes every watch of another for one that wants all events: writers would be
// held back for the sake of watches that their events never reach.
type watchInterest struct {
	upstream utilflowcontrol.WatchTracker
	trigger  func(schema.GroupVersionResource) annexed.Trigger

	lock sync.Mutex
	// dispatched are the watches of one value of a trigger.
	dispatched map[watchScope]*dispatchedWatches
}

// watchScope is where the objects of a watch are. An empty namespace stands for all.
type watchScope struct {
	resource  schema.GroupResource
	namespace string
}

type dispatchedWatches struct {
	watches int
	values  map[string]int
	// squares is the sum of the squares of values.
	squares int
}

var _ utilflowcontrol.WatchTracker = &watchInterest{}

func newWatchInterest(upstream utilflowcontrol.WatchTracker, trigger func(schema.GroupVersionResource) annexed.Trigger) *watchInterest {
	return &watchInterest{upstream: upstream, trigger: trigger, dispatched: map[watchScope]*dispatchedWatches{}}
}

// RegisterWatch implements utilflowcontrol.WatchTracker. What a watch is counted as does not change with the declaration.
func (w *watchInterest) RegisterWatch(r *http.Request) utilflowcontrol.ForgetWatchFunc {
	info, ok := genericapirequest.RequestInfoFrom(r.Context())
	if !ok || info.Verb != "watch" || info.Name != "" {
		return w.upstream.RegisterWatch(r)
	}
	value, ok := w.dispatchValue(r, info)
	if !ok {
		return w.upstream.RegisterWatch(r)
	}
	scope := scopeOf(info)
	w.lock.Lock()
	defer w.lock.Unlock()
	w.addLocked(scope, value, 1)
	return func() {
		w.lock.Lock()
		defer w.lock.Unlock()
		w.addLocked(scope, value, -1)
	}
}

func scopeOf(info *genericapirequest.RequestInfo) watchScope {
	return watchScope{resource: schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, namespace: info.Namespace}
}

func (w *watchInterest) addLocked(scope watchScope, value string, n int) {
	d := w.dispatched[scope]
	if d == nil {
		d = &dispatchedWatches{values: map[string]int{}}
		w.dispatched[scope] = d
	}
	d.watches += n
	d.squares -= d.values[value] * d.values[value]
	d.values[value] += n
	d.squares += d.values[value] * d.values[value]
	if d.values[value] == 0 {
		delete(d.values, value)
	}
	if d.watches == 0 {
		delete(w.dispatched, scope)
	}
}

// dispatchValue is the value of the trigger that a watch selects. It reports false for one that is offered every event.
func (w *watchInterest) dispatchValue(r *http.Request, info *genericapirequest.RequestInfo) (string, bool) {
	trigger := w.trigger(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
	if trigger == (annexed.Trigger{}) {
		return "", false
	}
	asked, ok := parseListOptions(r.URL.RawQuery)
	if !ok {
		return "", false // it will be refused
	}
	if trigger.Label != "" {
		return asked.Predicate.Label.RequiresExactMatch(trigger.Label)
	}
	return asked.Predicate.Field.RequiresExactMatch(trigger.Field)
}

// isReading says whether requests with a verb make no events, as upstream's tracker has it.
func isReading(verb string) bool {
	switch verb {
	case "get", "list", "watch", "proxy":
		return true
	default:
		return false
	}
}

// GetInterestedWatchCount implements utilflowcontrol.WatchTracker. Which value an object has is not known
// before its write is served: of the watches that are dispatched by a value it counts as many as such a watch shares its value with, on average.
func (w *watchInterest) GetInterestedWatchCount(info *genericapirequest.RequestInfo) int {
	if info == nil || isReading(info.Verb) {
		return 0
	}
	count := w.upstream.GetInterestedWatchCount(info)
	scope := scopeOf(info)
	w.lock.Lock()
	defer w.lock.Unlock()
	count += w.dispatched[scope].average()
	if scope.namespace != "" {
		scope.namespace = ""
		count += w.dispatched[scope].average()
	}
	return count
}

// average is the number of watches of the value of a watch, itself included. It rounds up; of nil it is 0. Where most
// watch one value, which is that of many writes, it is near to their number.
func (d *dispatchedWatches) average() int {
	if d == nil {
		return 0
	}
	return (d.squares + d.watches - 1) / d.watches
}
