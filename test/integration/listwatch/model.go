// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// object is what the tests know of an object: all that a selector can see.
type object struct {
	namespace string // empty for a cluster-scoped resource
	name      string
	team      string // the label
	field     string // the selectable field
	revision  int64  // of the last write
}

// key orders objects as etcd does.
func (o object) key() string {
	if o.namespace == "" {
		return o.name
	}
	return o.namespace + "/" + o.name
}

// String is what answers are compared by.
func (o object) String() string {
	return fmt.Sprintf("%s team=%s field=%s @%d", o.key(), o.team, o.field, o.revision)
}

// write is one change of one object.
type write struct {
	object  object
	deleted bool
}

// journal holds every write to one resource, oldest first. It is the tests' own
// idea of what the store holds.
type journal []write

// at returns the objects as they were at a revision, in the order of their keys.
func (j journal) at(revision int64) []object {
	state := map[string]object{}
	for _, w := range j {
		if w.object.revision > revision {
			break
		}
		if w.deleted {
			delete(state, w.object.key())
			continue
		}
		state[w.object.key()] = w.object
	}
	return slices.SortedFunc(maps.Values(state), func(a, b object) int { return cmp.Compare(a.key(), b.key()) })
}

// since returns the events that a watch from a revision has to deliver: an
// object that comes to match is added, one that no longer matches is deleted
// (k8s.io/apiserver pkg/storage/cacher/cache_watcher.go, convertToWatchEvent).
func (j journal) since(revision int64, matches func(object) bool) []string {
	events := []string{}
	for _, w := range j {
		if w.object.revision <= revision {
			continue
		}
		before, existed := find(j.at(w.object.revision-1), w.object.key())
		was, is := existed && matches(before), !w.deleted && matches(w.object)
		switch {
		case is && was:
			events = append(events, "MODIFIED "+w.object.String())
		case is:
			events = append(events, "ADDED "+w.object.String())
		case was:
			// The object as it was, with the revision of the event.
			before.revision = w.object.revision
			events = append(events, "DELETED "+before.String())
		}
	}
	return events
}

func find(objects []object, key string) (object, bool) {
	i := slices.IndexFunc(objects, func(o object) bool { return o.key() == key })
	if i < 0 {
		return object{}, false
	}
	return objects[i], true
}

func filter(objects []object, matches func(object) bool) []object {
	var matching []object
	for _, o := range objects {
		if matches(o) {
			matching = append(matching, o)
		}
	}
	return matching
}

func texts(objects []object) []string {
	lines := []string{}
	for _, o := range objects {
		lines = append(lines, o.String())
	}
	return lines
}
