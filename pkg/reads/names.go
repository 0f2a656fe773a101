// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what clients choose, in bytes.
const (
	maxClient = 64
	// maxUser leaves every service account whole: its namespace has at most 63 bytes, its name 253.
	maxUser     = len("system:serviceaccount:") + 63 + len(":") + 253
	maxSelector = 128
)

// clientOf is a user agent up to its version, such as kubelet/v1.37.2. What
// follows there is the platform, the commit or what else a client tells of itself.
func clientOf(agent string) string {
	if comment := strings.IndexByte(agent, '('); comment >= 0 {
		agent = agent[:comment]
	}
	if slash := strings.IndexByte(agent, '/'); slash >= 0 {
		if end := strings.IndexAny(agent[slash:], " \t,;"); end >= 0 {
			agent = agent[:slash+end]
		}
	}
	return bounded(strings.TrimSpace(agent), maxClient)
}

func userOf(name string) string { return bounded(name, maxUser) }

// ellipsis stands at the end of a text that was cut.
const ellipsis = "..."

// bounded makes a text of a client fit to be stored and printed: at most limit
// bytes of valid UTF-8, all of it printable.
func bounded(text string, limit int) string {
	if len(text) <= limit && isPlain(text) {
		return text
	}
	if len(text) > limit {
		text = text[:limit-len(ellipsis)] + ellipsis
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// isPlain reports whether a text has printable ASCII only.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
