// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

type verb string

const (
	get   verb = "GET"
	list  verb = "LIST"
	watch verb = "WATCH"
)

// rv is a kind of resourceVersion. The numbers behind the names are in world.revisions.
type rv string

const (
	rvUnset rv = "unset"
	rvZero  rv = "0"
	// rvCurrent is the revision of the last write.
	rvCurrent rv = "current"
	// rvOlder is behind the last write, and younger than the watch cache.
	rvOlder rv = "older"
	// rvUncached is older than the watch cache; etcd still has it.
	rvUncached rv = "older than the cache"
	// rvCompacted is older than the watch cache, and etcd has forgotten it.
	rvCompacted rv = "compacted"
	// rvFuture is a million above etcd's revision.
	rvFuture rv = "future"
)

func allRVs() []rv {
	return []rv{rvUnset, rvZero, rvCurrent, rvOlder, rvUncached, rvCompacted, rvFuture}
}

type match string

const (
	matchUnset    match = ""
	matchExact    match = "Exact"
	matchNotOlder match = "NotOlderThan"
)

func allMatches() []match { return []match{matchUnset, matchExact, matchNotOlder} }

// token is a kind of continue token, by the revision that it carries.
type token string

const (
	tokenNone      token = "none"
	tokenCached    token = token(rvOlder)
	tokenUncached  token = token(rvUncached)
	tokenCompacted token = token(rvCompacted)
	// tokenLatest carries -1: "go on from here in whatever is there now". The
	// server gives it out when it refuses a compacted one.
	tokenLatest token = "latest"
)

func allTokens() []token {
	return []token{tokenNone, tokenCached, tokenUncached, tokenCompacted, tokenLatest}
}

// flagValue is a boolean parameter that may be absent.
type flagValue string

const (
	absent flagValue = ""
	yes    flagValue = "true"
	no     flagValue = "false"
)

// selector restricts a query, by the path or by a parameter.
type selector struct {
	name      string
	namespace string // in the path
	label     string // parameters
	field     string
	matches   func(object) bool
	// key is the one key that the query can concern, when the selector names it.
	key string
	// prefix is the namespace that a field selector narrows the query to.
	prefix string
	// unsupported marks a field that the resource does not have.
	unsupported bool
}

// query is one request.
type query struct {
	verb      verb
	rv        rv
	match     match
	limit     int
	token     token
	selector  selector
	initial   flagValue // sendInitialEvents
	bookmarks flagValue // allowWatchBookmarks
}

// String names the query in a failure.
func (q query) String() string {
	text := fmt.Sprintf("%s rv=%s match=%q limit=%d continue=%s selector=%s", q.verb, q.rv, q.match, q.limit, q.token, q.selector.name)
	if q.verb == watch {
		text += fmt.Sprintf(" sendInitialEvents=%q allowWatchBookmarks=%q", q.initial, q.bookmarks)
	}
	return text
}

// single says that the storage looks at one key and not at a range. A continue
// token turns that off (k8s.io/apiserver pkg/storage/selection_predicate.go).
func (q query) single() bool { return q.selector.key != "" && q.token == tokenNone }

// url returns the address of the query at a resource.
func (q query) url(w *World, r *resource) string {
	params := url.Values{}
	set := func(name, value string) {
		if value != "" {
			params.Set(name, value)
		}
	}
	set("resourceVersion", w.resourceVersion(q.rv))
	set("resourceVersionMatch", string(q.match))
	if q.limit > 0 {
		set("limit", strconv.Itoa(q.limit))
	}
	set("continue", r.tokens[tokenAt{q.token, q.selector.namespace}].text)
	set("labelSelector", q.selector.label)
	set("fieldSelector", q.selector.field)
	set("sendInitialEvents", string(q.initial))
	set("allowWatchBookmarks", string(q.bookmarks))
	if q.verb == watch {
		set("watch", "true")
		set("timeoutSeconds", strconv.Itoa(watchSeconds))
	}
	path := r.path(q.selector.namespace)
	if q.verb == get {
		namespace, name, ok := strings.Cut(r.chosen().key(), "/")
		if !ok {
			namespace, name = "", r.chosen().name
		}
		path = r.path(namespace) + "/" + name
	}
	return path + "?" + params.Encode()
}
