// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Bounds of what clients choose, in bytes.
const (
	maxClient  = 64
	maxVersion = 32
	// maxUser leaves every service account whole: its namespace has at most 63 bytes, its name 253.
	maxUser     = len("system:serviceaccount:") + 63 + len(":") + 253
	maxSelector = 128
)

// clientOf parts a user agent into the family that it belongs to and its version:
// kubelet and v1.37.2 of "kubelet/v1.37.2 (linux/amd64) kubernetes/abc". What follows
// there is the platform, the commit or what else a client tells of itself.
func clientOf(agent string) (family, version string) {
	if comment := strings.IndexByte(agent, '('); comment >= 0 {
		agent = agent[:comment]
	}
	family = strings.TrimSpace(agent)
	// An absolute path is a name.
	if slash := strings.IndexByte(family, '/'); slash > 0 {
		family, version = strings.TrimSpace(family[:slash]), family[slash+1:]
		if end := strings.IndexAny(version, "/ \t,;"); end >= 0 {
			version = version[:end]
		}
	} else if blank := strings.LastIndexByte(family, ' '); blank > 0 && isVersion(family[blank+1:]) {
		family, version = strings.TrimSpace(family[:blank]), family[blank+1:]
	}
	return bounded(family, maxClient), bounded(version, maxVersion)
}

// isVersion tells 1.2 and v1.2 from a word.
func isVersion(text string) bool {
	text = strings.TrimPrefix(text, "v")
	return text != "" && '0' <= text[0] && text[0] <= '9'
}

// The names of nodes (k8s.io/apiserver pkg/authentication/user; upstream's node
// authorizer wants both the prefix and the group too).
const nodePrefix = "system:node:"

// allNodes stands for the nodes of a cluster: they all do the same, and one row for
// each would leave no room for others.
const allNodes = nodePrefix + "*"

func userOf(info user.Info) string {
	if strings.HasPrefix(info.GetName(), nodePrefix) && slices.Contains(info.GetGroups(), user.NodesGroup) {
		return allNodes
	}
	return bounded(info.GetName(), maxUser)
}

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
