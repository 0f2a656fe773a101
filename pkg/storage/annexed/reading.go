// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"sync"
)

// Source is what a read is served from.
type Source string

// The sources.
const (
	SourceCache Source = "cache"
	SourceEtcd  Source = "etcd"
)

// Rule names why a read is served from its source. The rules are upstream's
// (k8s.io/apiserver pkg/storage/cacher/delegator, ShouldDelegateList).
type Rule string

// The rules.
const (
	// RuleLatest is a read of the latest state, which the cache answers after it has
	// caught up with etcd's revision.
	RuleLatest Rule = "Latest"
	// RuleLatestFromEtcd is one that etcd answers, because the cache cannot catch up.
	RuleLatestFromEtcd Rule = "LatestFromEtcd"
	// RuleAny is a read at resourceVersion 0: whatever the cache holds.
	RuleAny Rule = "Any"
	// RuleNotOlderThan is a read that waits for a revision in the cache.
	RuleNotOlderThan Rule = "NotOlderThan"
	// RuleExact is a read at one revision of which the cache has a snapshot.
	RuleExact Rule = "Exact"
	// RuleExactFromEtcd is one of which the cache has none.
	RuleExactFromEtcd Rule = "ExactFromEtcd"
	// RuleContinue is a further page from a snapshot in the cache.
	RuleContinue Rule = "Continue"
	// RuleContinueFromEtcd is one of which the cache has no snapshot.
	RuleContinueFromEtcd Rule = "ContinueFromEtcd"
	// RuleNotReady is a read that etcd answers while the cache is being filled.
	RuleNotReady Rule = "NotReady"
	// RuleNoCache is a read of a server without a watch cache.
	RuleNoCache Rule = "NoCache"
	// RuleGetLatest is a GET without a resourceVersion, which goes to etcd.
	RuleGetLatest Rule = "GetLatest"
	// RuleNotStarted is a read that is only explained, of a version whose cache nobody has
	// needed yet. Carried out it would start the cache and wait until that is filled.
	RuleNotStarted Rule = "NotStarted"
	// RuleWatch is a watch, which the cache serves.
	RuleWatch Rule = "Watch"
	// RuleWatchFromEtcd is one that begins before the cache did.
	RuleWatchFromEtcd Rule = "WatchFromEtcd"
)

// Reading is how a read was answered, or would be.
type Reading struct {
	// Source is empty when the read came to nothing before anything was read.
	Source Source
	Rule   Rule
	// Index is the one that was read, or for a watch the trigger by which it is
	// dispatched: "f:<path>" of a field, "l:<key>" of a label, or empty.
	Index string
	// LimitIgnored says that the read has a limit and is answered whole.
	LimitIgnored bool
	// Total is the number of objects that the read's cache holds, or -1 if it is not known.
	Total int64
	// Scanned is the number of objects that were compared with the selectors, or
	// returned without, and Returned that of the answer. Of a read that was only
	// explained both are estimates, and -1 stands for one that cannot be told. Of
	// watches both are 0.
	Scanned, Returned int64
	// ObjectBytes is the estimated size of one object as it is stored, or 0.
	ObjectBytes int64
}

// Recorder takes the Reading of one request. It is safe for concurrent use.
type Recorder struct {
	explainOnly bool

	lock     sync.Mutex
	reading  Reading
	recorded bool
}

// Reading returns what was recorded, and whether anything was.
func (r *Recorder) Reading() (Reading, bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.reading, r.recorded
}

// record adds one read. A request has one as a rule; of several the objects add up
// and the last one says the rest.
func (r *Recorder) record(reading Reading) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.recorded {
		reading.Scanned = sum(reading.Scanned, r.reading.Scanned)
		reading.Returned = sum(reading.Returned, r.reading.Returned)
	}
	r.reading, r.recorded = reading, true
}

// sum adds two numbers of which -1 stands for one that is not known.
func sum(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}

type recorderKey struct{}

// WithRecorder returns a context whose reads are recorded.
func WithRecorder(ctx context.Context) (context.Context, *Recorder) {
	r := &Recorder{}
	return context.WithValue(ctx, recorderKey{}, r), r
}

// WithExplanation returns a context whose lists and watches are decided and recorded,
// with estimates, but not carried out: a list is answered empty, a watch with
// no event. A request that would be refused is refused with the same error, but for what
// only reading finds out: a revision that the cache does not reach in time, or that is
// compacted. GETs are carried out.
func WithExplanation(ctx context.Context) (context.Context, *Recorder) {
	r := &Recorder{explainOnly: true}
	return context.WithValue(ctx, recorderKey{}, r), r
}

func recorderOf(ctx context.Context) *Recorder {
	r, _ := ctx.Value(recorderKey{}).(*Recorder)
	return r
}

// explains reports whether the reads of a context are only explained.
func explains(ctx context.Context) bool {
	recorder := recorderOf(ctx)
	return recorder != nil && recorder.explainOnly
}

// HasRecorder reports whether the reads of a context are recorded or explained already.
func HasRecorder(ctx context.Context) bool {
	return recorderOf(ctx) != nil
}
