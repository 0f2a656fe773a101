// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// List is what is needed of a list to check an answer and to ask for its next page.
type List struct {
	// Items is the number of items.
	Items int
	// Bytes is the size of the list.
	Bytes int
	// Continue is the token of the next page.
	Continue string
	// ResourceVersion is that of the list.
	ResourceVersion string
}

// errNoList says that an answer is no list that ended well.
var errNoList = errors.New("the answer is no complete list")

// Scan counts the items of an encoded list without decoding them, at several
// hundred megabytes a second. The form is that which API servers write: an object
// whose member "items" is a list of objects.
func Scan(body []byte) (List, error) {
	list := List{Bytes: len(body)}
	s := scanner{rest: body}
	for {
		key, ok := s.key()
		if !ok {
			break
		}
		value := s.rest
		elements, ok := s.skip()
		if !ok {
			return List{}, errNoList
		}
		value = value[:len(value)-len(s.rest)]
		switch string(key) {
		case "items":
			list.Items = elements
		case "metadata":
			var metadata struct{ Continue, ResourceVersion string }
			if err := json.Unmarshal(value, &metadata); err != nil {
				return List{}, fmt.Errorf("reading the metadata of a list: %w", err)
			}
			list.Continue, list.ResourceVersion = metadata.Continue, metadata.ResourceVersion
		}
	}
	if !s.ended() || list.ResourceVersion == "" {
		return List{}, errNoList
	}
	return list, nil
}

// scanner walks over the members of one object.
type scanner struct {
	rest []byte
}

// key steps over a comma or an opening brace, and over a key and its colon. It
// returns false at the end of the object.
func (s *scanner) key() ([]byte, bool) {
	s.rest = bytes.TrimLeft(s.rest, "{, \n")
	if len(s.rest) == 0 || s.rest[0] != '"' {
		return nil, false
	}
	end := stringEnd(s.rest)
	if end < 0 {
		return nil, false
	}
	key := s.rest[1 : end-1]
	s.rest = bytes.TrimLeft(s.rest[end:], ": ")
	return key, true
}

// ended says that nothing but the end of the object is left.
func (s *scanner) ended() bool { return string(bytes.TrimSpace(s.rest)) == "}" }

// skip steps over a value. It returns how many objects are directly in it.
func (s *scanner) skip() (objects int, ok bool) {
	depth := 0
	for i := 0; i < len(s.rest); {
		switch s.rest[i] {
		case '"':
			end := stringEnd(s.rest[i:])
			if end < 0 {
				return 0, false
			}
			i += end
		case '{', '[':
			if depth == 1 && s.rest[i] == '{' {
				objects++
			}
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',':
			if depth == 0 {
				s.rest = s.rest[i:]
				return objects, true
			}
			i++
		default:
			i++
		}
		if depth < 0 {
			s.rest = s.rest[i-1:]
			return objects, true
		}
	}
	return 0, false
}

// stringEnd returns how long the quoted string is that text begins with, or -1.
func stringEnd(text []byte) int {
	for i := 1; i < len(text); {
		quote := bytes.IndexByte(text[i:], '"')
		if quote < 0 {
			return -1
		}
		i += quote + 1
		backslashes := 0
		for text[i-2-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i
		}
	}
	return -1
}
