// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// memoSize is enough for the object of an event and the one before it, while
// the event before is still being dispatched.
const memoSize = 4

// attributeMemo remembers the attributes of the last few objects. The Cacher asks
// for those of an object once, but calls every index function twice for each
// event, with the object alone, and the attributes of a custom resource are the
// results of a JSONPath for each field. It is safe for concurrent use.
//
// Objects are told apart by address: what the Cacher holds is not changed.
type attributeMemo struct {
	attributes storage.AttrFunc

	lock    sync.Mutex
	next    int
	entries [memoSize]memoEntry
}

type memoEntry struct {
	object runtime.Object
	labels labels.Set
	fields fields.Set
}

// get is a storage.AttrFunc with the results of attributes.
func (m *attributeMemo) get(obj runtime.Object) (labels.Set, fields.Set, error) {
	// Only pointers are sure to be comparable.
	if reflect.ValueOf(obj).Kind() != reflect.Pointer {
		return m.attributes(obj)
	}
	if entry, ok := m.find(obj); ok {
		return entry.labels, entry.fields, nil
	}
	labelSet, fieldSet, err := m.attributes(obj)
	if err != nil {
		return nil, nil, err
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.entries[m.next] = memoEntry{object: obj, labels: labelSet, fields: fieldSet}
	m.next = (m.next + 1) % memoSize
	return labelSet, fieldSet, nil
}

func (m *attributeMemo) find(obj runtime.Object) (memoEntry, bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for i := range m.entries {
		if m.entries[i].object == obj {
			return m.entries[i], true
		}
	}
	return memoEntry{}, false
}
