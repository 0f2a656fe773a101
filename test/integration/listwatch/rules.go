// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// server says who answers a request.
type server string

const (
	servedByNobody     server = "nobody"
	servedByCache      server = "cache"
	servedByConsistent server = "cache, after asking etcd for its revision"
	servedByEtcd       server = "etcd"
	// servedUnknown stands for parameters that did not exist at the time.
	servedUnknown server = "–"
)

// content is what an answer holds.
type content int

const (
	nothing       content = iota
	latestState           // everything that is there now
	stateAtRV             // everything that was there at the requested revision
	restAtToken           // what follows the token's key at the token's revision
	restLatest            // what follows the token's key now
	initialEvents         // ADDED for everything that is there now, then a bookmark if bookmarks are allowed
	eventsSinceRV         // every change after the requested revision
	silence               // a stream without events
	errorEvent            // a stream of one ERROR event
	latestSingle          // GET: the object as it is now
)

// rule is one line of the tables in docs/list-watch.md and the expectation of
// every query to which no earlier rule of the same verb applies.
type rule struct {
	request string // in words
	answer  string // in words
	today   server
	then    server // Kubernetes 1.24
	applies func(q query) bool

	code    int // of the answer, or of the Status in an ERROR event
	reason  metav1.StatusReason
	cause   metav1.CauseType
	content content
	// waits says that the answer comes after the three seconds that the cache
	// waits for a revision, with a Retry-After header.
	waits bool
	// newToken says that the refusal holds a token with which to go on.
	newToken bool
}

// check is one line of the table of refused parameters. A request to which
// checks apply is refused with a cause for each of them.
type check struct {
	request string
	cause   string // field and type
	applies func(q query) bool
}

// listChecks follow k8s.io/apimachinery pkg/apis/meta/internalversion/validation.
func listChecks() []check {
	const forbidden = "resourceVersionMatch: FieldValueForbidden"
	return []check{
		{"resourceVersionMatch without resourceVersion", forbidden, func(q query) bool { return q.match != "" && q.rv == rvUnset }},
		{"resourceVersionMatch with continue", forbidden, func(q query) bool { return q.match != "" && q.token != tokenNone }},
		{"resourceVersionMatch=Exact with resourceVersion=0", forbidden, func(q query) bool { return q.match == matchExact && q.rv == rvZero }},
		{"sendInitialEvents", "sendInitialEvents: FieldValueForbidden", func(q query) bool { return q.initial != absent }},
	}
}

// watchChecks are of the same package. They look at parameters after defaults.
func watchChecks() []check {
	const forbidden = "resourceVersionMatch: FieldValueForbidden"
	return []check{
		{"sendInitialEvents without resourceVersionMatch=NotOlderThan", forbidden,
			func(q query) bool { return q.initial != absent && q.match != matchNotOlder }},
		{"resourceVersionMatch without sendInitialEvents", forbidden,
			func(q query) bool { return q.initial == absent && q.match != "" }},
		{"resourceVersionMatch other than NotOlderThan", "resourceVersionMatch: FieldValueNotSupported",
			func(q query) bool { return q.match != "" && q.match != matchNotOlder }},
		{"resourceVersionMatch with continue", forbidden,
			func(q query) bool { return q.match != "" && q.token != tokenNone }},
	}
}

// withDefaults is what the server makes of a query before it looks at it: a
// watch from nowhere gets initial events, bookmark or not
// (k8s.io/apimachinery pkg/apis/meta/internalversion/defaults.go).
func withDefaults(q query) query {
	fromNowhere := q.rv == rvUnset || q.rv == rvZero
	if q.verb == watch && fromNowhere && q.initial == absent && q.match == "" {
		q.initial, q.match = yes, matchNotOlder
	}
	return q
}

// getRules follow CacheDelegator.Get (k8s.io/apiserver pkg/storage/cacher/delegator.go).
// Only resourceVersion means anything to a GET.
func getRules() []rule {
	return []rule{
		{
			request: "resourceVersion unset", answer: "the object as it is now",
			applies: func(q query) bool { return q.rv == rvUnset },
			today:   servedByEtcd, then: servedByEtcd, code: http.StatusOK, content: latestSingle,
		}, {
			request: "resourceVersion above etcd's", answer: "504 Timeout after 3 s, cause ResourceVersionTooLarge, Retry-After",
			applies: func(q query) bool { return q.rv == rvFuture },
			today:   servedByCache, then: servedByCache, code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout,
			cause: metav1.CauseTypeResourceVersionTooLarge, waits: true,
		}, {
			request: "any other resourceVersion, however old", answer: "the object at that revision or later",
			applies: func(query) bool { return true },
			today:   servedByCache, then: servedByCache, code: http.StatusOK, content: latestSingle,
		},
	}
}

// listRules follow ShouldDelegateList (k8s.io/apiserver pkg/storage/cacher/delegator),
// the Cacher's answers to it (cacher.go), ValidateListOptions (pkg/storage/interfaces.go)
// and GetList of the two stores.
func listRules() []rule {
	return append(append(listContinueRules(), listExactRules()...), listLatestRules()...)
}

func listContinueRules() []rule {
	continues := func(t token) func(query) bool { return func(q query) bool { return q.token == t } }
	return []rule{
		{
			request: "a fieldSelector on a field that the version does not have", answer: "400 BadRequest",
			applies: func(q query) bool { return q.selector.unsupported },
			today:   servedByNobody, then: servedByNobody, code: http.StatusBadRequest, reason: metav1.StatusReasonBadRequest,
		}, {
			request: "continue, with a resourceVersion other than 0", answer: "400 BadRequest",
			applies: func(q query) bool { return q.token != tokenNone && q.rv != rvUnset && q.rv != rvZero },
			today:   servedByNobody, then: servedByNobody, code: http.StatusBadRequest, reason: metav1.StatusReasonBadRequest,
		}, {
			request: "continue, the token without a revision", answer: "the rest of the list as it is now; limit is ignored at resourceVersion=0",
			applies: continues(tokenLatest),
			today:   servedByConsistent, then: servedByEtcd, code: http.StatusOK, content: restLatest,
		}, {
			request: "continue, the token's revision in the cache's memory", answer: "the rest of the list at that revision; limit is ignored at resourceVersion=0",
			applies: continues(tokenCached),
			today:   servedByCache, then: servedByEtcd, code: http.StatusOK, content: restAtToken,
		}, {
			request: "continue, the token's revision older than that", answer: "the rest of the list at that revision",
			applies: continues(tokenUncached),
			today:   servedByEtcd, then: servedByEtcd, code: http.StatusOK, content: restAtToken,
		}, {
			request: "continue, the token's revision compacted", answer: "410 Expired, with a token without a revision",
			applies: continues(tokenCompacted),
			today:   servedByEtcd, then: servedByEtcd, code: http.StatusGone, reason: metav1.StatusReasonExpired, newToken: true,
		},
	}
}

// exact says that a list asks for one revision, by name or, as of old, by a limit.
func exact(q query) bool {
	return q.match == matchExact || q.match == "" && q.limit > 0 && q.rv != rvUnset && q.rv != rvZero
}

func listExactRules() []rule {
	all := func(conditions ...func(query) bool) func(query) bool {
		return func(q query) bool {
			for _, condition := range conditions {
				if !condition(q) {
					return false
				}
			}
			return true
		}
	}
	is := func(kind rv) func(query) bool { return func(q query) bool { return q.rv == kind } }
	named := func(q query) bool { return q.single() && q.match == matchExact }
	limited := func(q query) bool { return q.single() && q.match == "" }
	return []rule{
		{
			request: "Exact, a single object by name, resourceVersion above etcd's", answer: "504 Timeout at once, cause ResourceVersionTooLarge",
			applies: all(exact, named, is(rvFuture)),
			today:   servedByEtcd, then: servedByEtcd, code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout,
			cause: metav1.CauseTypeResourceVersionTooLarge,
		}, {
			request: "Exact, a single object by name, resourceVersion compacted", answer: "410 Expired",
			applies: all(exact, named, is(rvCompacted)),
			today:   servedByEtcd, then: servedByEtcd, code: http.StatusGone, reason: metav1.StatusReasonExpired,
		}, {
			request: "Exact, a single object by name", answer: "the object at that revision",
			applies: all(exact, named),
			today:   servedByEtcd, then: servedByEtcd, code: http.StatusOK, content: stateAtRV,
		}, {
			request: "limit, a single object by name, resourceVersion above etcd's", answer: "504 Timeout at once, cause ResourceVersionTooLarge",
			applies: all(exact, limited, is(rvFuture)),
			today:   servedByEtcd, then: servedByEtcd, code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout,
			cause: metav1.CauseTypeResourceVersionTooLarge,
		}, {
			request: "limit, a single object by name, any other resourceVersion but 0", answer: "the object as it is now",
			applies: all(exact, limited),
			today:   servedByEtcd, then: servedByEtcd, code: http.StatusOK, content: latestState,
		}, {
			request: "Exact or limit, resourceVersion above etcd's", answer: "504 Timeout after 3 s, cause ResourceVersionTooLarge, Retry-After",
			applies: all(exact, is(rvFuture)),
			today:   servedByCache, then: servedByEtcd, code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout,
			cause: metav1.CauseTypeResourceVersionTooLarge, waits: true,
		}, {
			request: "Exact or limit, resourceVersion compacted", answer: "410 Expired",
			applies: all(exact, is(rvCompacted)),
			today:   servedByEtcd, then: servedByEtcd, code: http.StatusGone, reason: metav1.StatusReasonExpired,
		}, {
			request: "Exact or limit, resourceVersion older than the cache's memory", answer: "the list at that revision",
			applies: all(exact, is(rvUncached)),
			today:   servedByEtcd, then: servedByEtcd, code: http.StatusOK, content: stateAtRV,
		}, {
			request: "Exact or limit, resourceVersion in the cache's memory", answer: "the list at that revision",
			applies: exact,
			today:   servedByCache, then: servedByEtcd, code: http.StatusOK, content: stateAtRV,
		},
	}
}

func listLatestRules() []rule {
	return []rule{
		{
			request: "resourceVersion unset", answer: "the list as it is now",
			applies: func(q query) bool { return q.rv == rvUnset },
			today:   servedByConsistent, then: servedByEtcd, code: http.StatusOK, content: latestState,
		}, {
			request: "resourceVersion=0, with or without NotOlderThan", answer: "the list as the cache knows it; limit is ignored",
			applies: func(q query) bool { return q.rv == rvZero },
			today:   servedByCache, then: servedByCache, code: http.StatusOK, content: latestState,
		}, {
			request: "NotOlderThan with limit, resourceVersion above etcd's", answer: "504 Timeout after 3 s, cause ResourceVersionTooLarge, Retry-After",
			applies: func(q query) bool { return q.rv == rvFuture && q.limit > 0 },
			today:   servedByCache, then: servedByEtcd, code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout,
			cause: metav1.CauseTypeResourceVersionTooLarge, waits: true,
		}, {
			request: "NotOlderThan or nothing else, resourceVersion above etcd's", answer: "504 Timeout after 3 s, cause ResourceVersionTooLarge, Retry-After",
			applies: func(q query) bool { return q.rv == rvFuture },
			today:   servedByCache, then: servedByCache, code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout,
			cause: metav1.CauseTypeResourceVersionTooLarge, waits: true,
		}, {
			request: "NotOlderThan with limit, any other resourceVersion, however old", answer: "the list at that revision or later",
			applies: func(q query) bool { return q.limit > 0 },
			today:   servedByCache, then: servedByEtcd, code: http.StatusOK, content: latestState,
		}, {
			request: "NotOlderThan or nothing else, any other resourceVersion, however old", answer: "the list at that revision or later",
			applies: func(query) bool { return true },
			today:   servedByCache, then: servedByCache, code: http.StatusOK, content: latestState,
		},
	}
}

// watchRules follow Cacher.Watch (k8s.io/apiserver pkg/storage/cacher/cacher.go)
// and getAllEventsSinceLocked (watch_cache.go). Limit and continue mean nothing
// to a watch. They see a query after withDefaults.
func watchRules() []rule {
	return []rule{
		{
			request: "a fieldSelector on a field that the version does not have", answer: "400 BadRequest",
			applies: func(q query) bool { return q.selector.unsupported },
			today:   servedByNobody, then: servedByNobody, code: http.StatusBadRequest, reason: metav1.StatusReasonBadRequest,
		}, {
			request: "resourceVersion unset, with or without sendInitialEvents=true",
			answer:  "ADDED for everything that is there now; with allowWatchBookmarks then a BOOKMARK that marks the end; then changes",
			applies: func(q query) bool { return q.initial == yes && q.rv == rvUnset },
			today:   servedByConsistent, then: servedByCache, code: http.StatusOK, content: initialEvents,
		}, {
			request: "sendInitialEvents=true, resourceVersion above etcd's",
			answer:  "after 3 s one ERROR event: 504 Timeout, cause ResourceVersionTooLarge",
			applies: func(q query) bool { return q.initial == yes && q.rv == rvFuture },
			today:   servedByCache, then: servedUnknown, code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout,
			cause: metav1.CauseTypeResourceVersionTooLarge, content: errorEvent, waits: true,
		}, {
			request: "resourceVersion=0, with or without sendInitialEvents=true",
			answer:  "ADDED for everything that the cache knows; with allowWatchBookmarks then a BOOKMARK that marks the end; then changes",
			applies: func(q query) bool { return q.initial == yes && q.rv == rvZero },
			today:   servedByCache, then: servedByCache, code: http.StatusOK, content: initialEvents,
		}, {
			request: "sendInitialEvents=true, any other resourceVersion, however old",
			answer:  "ADDED for everything at that revision or later; with allowWatchBookmarks then a BOOKMARK that marks the end; then changes",
			applies: func(q query) bool { return q.initial == yes },
			today:   servedByCache, then: servedUnknown, code: http.StatusOK, content: initialEvents,
		}, {
			request: "sendInitialEvents=false, resourceVersion unset", answer: "changes from now on",
			applies: func(q query) bool { return q.initial == no && q.rv == rvUnset },
			today:   servedByConsistent, then: servedUnknown, code: http.StatusOK, content: silence,
		}, {
			request: "sendInitialEvents=false, resourceVersion=0", answer: "changes from where the cache is",
			applies: func(q query) bool { return q.rv == rvZero },
			today:   servedByCache, then: servedUnknown, code: http.StatusOK, content: silence,
		}, {
			request: "resourceVersion above etcd's", answer: "silence until etcd gets there; changes before that are not sent",
			applies: func(q query) bool { return q.rv == rvFuture },
			today:   servedByCache, then: servedByCache, code: http.StatusOK, content: silence,
		}, {
			request: "resourceVersion older than the cache's memory, compacted or not", answer: "one ERROR event: 410 Expired",
			applies: func(q query) bool { return q.rv == rvUncached || q.rv == rvCompacted },
			today:   servedByCache, then: servedByCache, code: http.StatusGone, reason: metav1.StatusReasonExpired, content: errorEvent,
		}, {
			request: "any other resourceVersion", answer: "every change after that revision",
			applies: func(query) bool { return true },
			today:   servedByCache, then: servedByCache, code: http.StatusOK, content: eventsSinceRV,
		},
	}
}

// rules returns the rules of a verb, in their order.
func rules(v verb) []rule {
	switch v {
	case get:
		return getRules()
	case list:
		return listRules()
	default:
		return watchRules()
	}
}

func checks(v verb) []check {
	switch v {
	case list:
		return listChecks()
	case watch:
		return watchChecks()
	default:
		return nil
	}
}

// invalid is the answer to a query that fails checks.
func invalid() rule {
	return rule{
		request: "parameters that exclude each other", today: servedByNobody,
		code: http.StatusUnprocessableEntity, reason: metav1.StatusReasonInvalid,
	}
}
