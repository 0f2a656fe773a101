// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package digest compares sets of objects that are stored in two places. The
// digest of a set is the sum of the SHA-256 hashes of its members, so it does
// not depend on their order and follows single changes without a second look at
// the rest. Equal sets have equal digests; the objects come from servers that are
// trusted, so nobody is expected to search for a collision of sums.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
)

// lanes is how many 64-bit numbers a hash has.
const lanes = sha256.Size / 8

// Entry is one member of a set. The zero Entry is the absent object.
type Entry struct {
	hash [lanes]uint64
	size int64
}

// OfBytes returns the entry of a member in its one canonical form.
func OfBytes(content []byte) Entry {
	entry := Entry{size: int64(len(content))}
	hash := sha256.Sum256(content)
	for i := range entry.hash {
		entry.hash[i] = binary.BigEndian.Uint64(hash[8*i:])
	}
	return entry
}

// OfObject returns the entry of an object, given as decoded JSON, without its
// resourceVersion: JSON with sorted keys is the canonical form. The object is
// not changed. Both sides must give it in the same version.
func OfObject(object map[string]any) (Entry, error) {
	content, err := Canonical(object)
	if err != nil {
		return Entry{}, err
	}
	return OfBytes(content), nil
}

// Canonical is the JSON of an object without its resourceVersion.
func Canonical(object map[string]any) ([]byte, error) {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		if _, ok := metadata["resourceVersion"]; ok {
			object, metadata = maps.Clone(object), maps.Clone(metadata)
			delete(metadata, "resourceVersion")
			object["metadata"] = metadata
		}
	}
	content, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding an object: %w", err)
	}
	return content, nil
}

// Set is the digest of a set of objects. The zero Set is empty.
type Set struct { //nolint:recvcheck // a set is printed by value and changed by pointer
	sum [lanes]uint64
	// Objects is the number of members.
	Objects int64
	// Bytes is the sum of their sizes in canonical form.
	Bytes int64
}

// Add puts a member in.
func (s *Set) Add(entry Entry) {
	for i := range s.sum {
		s.sum[i] += entry.hash[i]
	}
	s.Objects++
	s.Bytes += entry.size
}

// Remove takes a member out that was put in before.
func (s *Set) Remove(entry Entry) {
	for i := range s.sum {
		s.sum[i] -= entry.hash[i]
	}
	s.Objects--
	s.Bytes -= entry.size
}

// String is the digest as hexadecimal text.
func (s Set) String() string {
	var text [sha256.Size]byte
	for i, lane := range s.sum {
		binary.BigEndian.PutUint64(text[8*i:], lane)
	}
	return hex.EncodeToString(text[:])
}
