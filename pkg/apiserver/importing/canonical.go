// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"bytes"
	"unicode/utf8"
)

// maxScanDepth bounds the recursion. Deeper objects are decoded instead.
const maxScanDepth = 100

// isCanonical reports whether content is certainly what digest.Canonical makes of
// it: JSON with sorted keys and no spaces, escaped as encoding/json escapes, and
// without metadata.resourceVersion. It does not decode, so it is ten times as fast.
// False means that one has to decode: rare forms, such as fractions, are not looked into.
func isCanonical(content []byte) bool {
	if !utf8.Valid(content) {
		return false
	}
	s := scanner{rest: content}
	return s.value(0, false) && len(s.rest) == 0
}

// scanner reads canonical JSON from the front of rest. Its methods return false
// when that is anything else.
type scanner struct {
	rest []byte
}

// take reads one given character.
func (s *scanner) take(c byte) bool {
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) literal(text string) bool {
	if len(s.rest) < len(text) || string(s.rest[:len(text)]) != text {
		return false
	}
	s.rest = s.rest[len(text):]
	return true
}

func (s *scanner) value(depth int, isMetadata bool) bool {
	if len(s.rest) == 0 || depth > maxScanDepth {
		return false
	}
	switch s.rest[0] {
	case '{':
		return s.object(depth, isMetadata)
	case '[':
		return s.array(depth)
	case '"':
		_, ok := s.text()
		return ok
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		return s.integer()
	}
}

func (s *scanner) object(depth int, isMetadata bool) bool {
	s.take('{')
	if s.take('}') {
		return true
	}
	var last []byte
	for first := true; ; first = false {
		key, ok := s.text()
		// Keys are sorted before they are escaped, so those with escapes are left to the decoder.
		if !ok || bytes.IndexByte(key, '\\') >= 0 || (!first && bytes.Compare(last, key) >= 0) {
			return false
		}
		if isMetadata && string(key) == "resourceVersion" {
			return false
		}
		last = key
		if !s.take(':') || !s.value(depth+1, depth == 0 && string(key) == "metadata") {
			return false
		}
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

func (s *scanner) array(depth int) bool {
	s.take('[')
	if s.take(']') {
		return true
	}
	for {
		if !s.value(depth+1, false) {
			return false
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// text reads a string and returns what stands between its quotes.
func (s *scanner) text() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	for i := 0; i < len(s.rest); i++ {
		switch c := s.rest[i]; {
		case c == '"':
			content := s.rest[:i]
			s.rest = s.rest[i+1:]
			return content, true
		case c < ' ' || c == '<' || c == '>' || c == '&':
			return nil, false
		case c == '\\':
			length := escapeLength(s.rest[i:])
			if length == 0 {
				return nil, false
			}
			i += length - 1
		case c == 0xE2 && isLineSeparator(s.rest[i:]):
			return nil, false
		}
	}
	return nil, false
}

// escapeLength is the length of the escape at the front, and 0 if encoding/json
// may write that character in another way.
func escapeLength(rest []byte) int {
	if len(rest) < 2 {
		return 0
	}
	switch rest[1] {
	case '"', '\\', 'n', 'r', 't':
		return 2
	case 'u':
		if len(rest) < 6 {
			return 0
		}
		switch string(rest[2:6]) {
		case "003c", "003e", "0026", "2028", "2029":
			return 6
		}
	}
	return 0
}

// isLineSeparator recognises U+2028 and U+2029, which encoding/json escapes.
func isLineSeparator(rest []byte) bool {
	return len(rest) >= 3 && rest[1] == 0x80 && (rest[2] == 0xA8 || rest[2] == 0xA9)
}

// maxIntegerDigits keeps integers inside of int64.
const maxIntegerDigits = 18

func (s *scanner) integer() bool {
	i := 0
	if s.rest[0] == '-' {
		i++
	}
	start := i
	for i < len(s.rest) && s.rest[i] >= '0' && s.rest[i] <= '9' {
		i++
	}
	digits := i - start
	if digits == 0 || digits > maxIntegerDigits || (s.rest[start] == '0' && i > 1) {
		return false
	}
	if i < len(s.rest) && (s.rest[i] == '.' || s.rest[i] == 'e' || s.rest[i] == 'E') {
		return false
	}
	s.rest = s.rest[i:]
	return true
}
