// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"hash/maphash"
	"iter"
	"maps"
	"math"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// sampleSize is how many objects a sample remembers at most.
	sampleSize = 2048
	// fewObjects is a number of candidates that is never worth a thought.
	fewObjects = 256
)

// sample estimates how many objects have a value, how many are in a namespace, and
// how many a selector selects. Upstream takes the first index that fits, however many
// objects it offers, and says of no index how large it is.
//
// It remembers one in 2^shift objects, chosen by their names, so an object that is
// in the sample stays in it while it changes; up to sampleSize objects it is exact. What it
// says may be off; it decides about cost only. It is safe for concurrent use.
type sample struct {
	seed maphash.Seed
	// indexed are the values by which the indexes have an object, by name of the index.
	// They are the same whenever it is asked for the same attributes.
	indexed func(labels.Set, fields.Set) iter.Seq2[string, string]

	lock       sync.Mutex
	shift      uint
	objects    map[string]sampled
	namespaces map[string]int
	values     map[string]map[string]int // by name of the index
}

// sampled is an object as it was put into the indexes. Its attributes are those that the
// Cacher has of it, which nobody changes.
type sampled struct {
	address uintptr
	hash    uint64
	labels  labels.Set
	fields  fields.Set
}

func newSample(indexed func(labels.Set, fields.Set) iter.Seq2[string, string]) *sample {
	return &sample{
		seed: maphash.MakeSeed(), indexed: indexed,
		objects: map[string]sampled{}, namespaces: map[string]int{}, values: map[string]map[string]int{},
	}
}

// observe is told of an object when an index function is called with it. The
// Cacher does that once when it puts the object into the index and once when it
// takes it out; when it reads everything anew, it only puts in
// (k8s.io/apiserver pkg/storage/cacher/store/store_btree.go, updateElem).
func (s *sample) observe(obj runtime.Object, labelSet labels.Set, fieldSet fields.Set) {
	namespace, name := fieldSet.Get(namespaceField), fieldSet.Get(nameField)
	hash := s.hash(namespace, name)
	address := reflect.ValueOf(obj).Pointer()
	s.lock.Lock()
	defer s.lock.Unlock()
	if !s.selectsLocked(hash) {
		return
	}
	key := namespace + "/" + name
	before, known := s.objects[key]
	if known {
		s.forgetLocked(key, before)
		if before.address == address {
			return
		}
	}
	s.objects[key] = sampled{address: address, hash: hash, labels: labelSet, fields: fieldSet}
	s.namespaces[namespace]++
	for index, value := range s.indexed(labelSet, fieldSet) {
		if s.values[index] == nil {
			s.values[index] = map[string]int{}
		}
		s.values[index][value]++
	}
	if len(s.objects) > sampleSize {
		s.thinLocked()
	}
}

// hash needs no memory, as most objects of a large cache are not in its sample.
func (s *sample) hash(namespace, name string) uint64 {
	var hash maphash.Hash
	hash.SetSeed(s.seed)
	_, _ = hash.WriteString(namespace)
	_ = hash.WriteByte('/')
	_, _ = hash.WriteString(name)
	return hash.Sum64()
}

func (s *sample) selectsLocked(hash uint64) bool { return hash&(1<<s.shift-1) == 0 }

func (s *sample) forgetLocked(key string, entry sampled) {
	delete(s.objects, key)
	lower(s.namespaces, entry.fields.Get(namespaceField))
	for index, value := range s.indexed(entry.labels, entry.fields) {
		lower(s.values[index], value)
	}
}

func lower(counts map[string]int, key string) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}

// thinLocked halves the sample.
func (s *sample) thinLocked() {
	s.shift++
	for key, entry := range s.objects {
		if !s.selectsLocked(entry.hash) {
			s.forgetLocked(key, entry)
		}
	}
}

// inScope estimates the objects in a namespace, or in all for "".
func (s *sample) inScope(namespace string) int {
	s.lock.Lock()
	defer s.lock.Unlock()
	if namespace == "" {
		return len(s.objects) << s.shift
	}
	return s.namespaces[namespace] << s.shift
}

// withValue estimates the objects that an index has under a value.
func (s *sample) withValue(index, value string) int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.values[index][value] << s.shift
}

// exact reports whether the sample has seen all objects and remembers each.
func (s *sample) exact() bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.shift == 0
}

// sampleMatch is told the attributes of an object.
type sampleMatch func(labels.Set, fields.Set) bool

// matching estimates the objects that match.
func (s *sample) matching(match sampleMatch) int {
	s.lock.Lock()
	objects, shift := maps.Clone(s.objects), s.shift
	s.lock.Unlock()
	n := 0
	for _, entry := range objects {
		if match(entry.labels, entry.fields) {
			n++
		}
	}
	return n << shift
}

// fewSampled is how many objects matchingFew looks at.
const fewSampled = 64

// matchingFew is matching for who is in a hurry: it looks at any few objects of the sample.
func (s *sample) matchingFew(match sampleMatch) int {
	few, total := s.few()
	n := 0
	for _, entry := range few {
		if match(entry.labels, entry.fields) {
			n++
		}
	}
	if len(few) == 0 {
		return 0
	}
	return n * total / len(few)
}

// few are any few objects of the sample. A selector may take its time to match, and every event waits for the lock.
func (s *sample) few() (few map[string]sampled, total int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	few = make(map[string]sampled, fewSampled)
	for key, entry := range s.objects {
		if len(few) == fewSampled {
			break
		}
		few[key] = entry
	}
	return few, len(s.objects) << s.shift
}

// Sizes of what an index consists of, a map of values to maps of keys to objects,
// as measured with Go 1.26: BenchmarkIndexMemory.
const (
	bytesPerValue   = 84  // in the outer map, and the head of the inner one
	bytesPerEntry   = 34  // 24 for key and pointer, and the room that a map keeps
	bytesOfSmallMap = 200 // a map of up to eight entries
)

// size estimates the entries of an index and the bytes that it takes beside the
// objects, which it shares with the cache.
//
// How many different values there are among all objects follows from the sample by
// the estimator of Charikar and others (Towards Estimation Error Guarantees for
// Distinct Values, 2000): values that occur once stand for the square root of
// the sampling rate's inverse, others for themselves.
func (s *sample) size(index string) (entries, bytes int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	counted, once := 0, 0
	for _, n := range s.values[index] {
		counted += n
		if n == 1 {
			once++
		}
	}
	if counted == 0 {
		return 0, 0
	}
	entries = counted << s.shift
	values := float64(len(s.values[index])-once) + float64(once)*math.Sqrt(float64(uint64(1)<<s.shift))
	perValue := bytesPerValue + math.Max(bytesOfSmallMap, bytesPerEntry*float64(entries)/values)
	return entries, int(values * perValue)
}
