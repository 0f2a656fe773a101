// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MaxIndexes is the largest number of different indexes of one storage. Every
// index is a copy of the resource's keys in memory and work on every write.
const MaxIndexes = 8

// Indexes declares what the watch cache of one resource is indexed by. An index
// changes what an answer costs and never the answer. The zero value declares none.
type Indexes struct {
	// Fields are paths as a field selector writes them, for example
	// "spec.nodeName". Paths that the attributes of the resource do not have, and
	// which no selector can name therefore, are left out.
	Fields []string
	// Labels are label keys.
	Labels []string
	// Trigger is what watches are dispatched by. It is an index for lists, too.
	Trigger Trigger
}

// Trigger names a field or a label. An event is offered only to those watches
// that select a value which the object has or had there, and to watches that do
// not select one value of it. At most one of the two is set; with neither every
// event is offered to every watch.
type Trigger struct {
	Field string
	Label string
}

// Equal reports whether both declare the same in the same order.
func (x Indexes) Equal(other Indexes) bool {
	return slices.Equal(x.Fields, other.Fields) && slices.Equal(x.Labels, other.Labels) && x.Trigger == other.Trigger
}

// Count is the number of different indexes.
func (x Indexes) Count() int {
	all := x.withTrigger()
	return len(all.Fields) + len(all.Labels)
}

// withTrigger returns the declaration without duplicates, the trigger first.
func (x Indexes) withTrigger() Indexes {
	all := Indexes{Trigger: x.Trigger}
	if x.Trigger.Field != "" {
		all.Fields = append(all.Fields, x.Trigger.Field)
	}
	if x.Trigger.Label != "" {
		all.Labels = append(all.Labels, x.Trigger.Label)
	}
	for _, field := range x.Fields {
		if !slices.Contains(all.Fields, field) {
			all.Fields = append(all.Fields, field)
		}
	}
	for _, label := range x.Labels {
		if !slices.Contains(all.Labels, label) {
			all.Labels = append(all.Labels, label)
		}
	}
	return all
}

// limited returns a declaration of at most MaxIndexes indexes. Labels come
// before fields, because labels are declared one by one while fields are usually
// all that there are. What did not fit is returned by name.
func (x Indexes) limited() (kept Indexes, dropped []string) {
	kept = x.withTrigger()
	room := MaxIndexes
	if kept.Trigger.Field != "" {
		room-- // the first field
	}
	if len(kept.Labels) > room {
		dropped = append(dropped, kept.Labels[room:]...)
		kept.Labels = kept.Labels[:room]
	}
	if room = MaxIndexes - len(kept.Labels); len(kept.Fields) > room {
		dropped = append(dropped, kept.Fields[room:]...)
		kept.Fields = kept.Fields[:room]
	}
	return kept, dropped
}

// IndexSource says which indexes storage gets. It must be safe for concurrent use.
type IndexSource interface {
	// Follow calls declare with the indexes of a resource before it returns, and
	// again each time they change until stop is called. The calls come one at a time,
	// the newest last. example is an empty object of the type, for a custom resource
	// of the version, that the storage serves.
	Follow(resource schema.GroupResource, example runtime.Object, declare func(Indexes)) (stop func())
}
