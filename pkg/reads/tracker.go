// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/utils/clock"

	"github.com/kubeannex/annex/pkg/serving"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// DefaultRows is how many rows the table has. A row takes about one KiB at most.
const DefaultRows = 2000

// Tracker keeps account of reads. It is safe for concurrent use.
type Tracker struct {
	clock clock.PassiveClock
	// record makes the storage record the reads of a context.
	record   func(context.Context) (context.Context, recorder)
	table    *table
	counters *counters
}

// recorder knows what a request has read.
type recorder interface {
	Reading() (annexed.Reading, bool)
}

// NewTracker returns a tracker that has seen nothing. Its table has at most rows
// rows. Its metrics are not registered.
func NewTracker(rows int) *Tracker {
	return newTracker(rows, clock.RealClock{}, func(ctx context.Context) (context.Context, recorder) {
		return annexed.WithRecorder(ctx)
	})
}

func newTracker(rows int, passive clock.PassiveClock, record func(context.Context) (context.Context, recorder)) *Tracker {
	return &Tracker{clock: passive, record: record, table: newTable(rows, passive.Now()), counters: newCounters()}
}

// Served reports whether a resource is served, with the subresource unless that is empty.
type Served func(resource schema.GroupVersionResource, subresource string) bool

// Indexed reports whether a resource has an index of that name still, whether it is
// declared or read from as long as a cache with the next declaration is built.
type Indexed func(resource schema.GroupResource, index string) bool

// Handler puts the tracker before the handler of the resources. It belongs behind
// authentication, authorization and whatever else refuses requests that come to no
// read. Only resources that are served are tracked, so that nobody can make up
// names. The server's own reads are not, nor those whose context has a Recorder
// already, but for that of WithAnalysis.
func (t *Tracker) Handler(inner http.Handler, served Served, indexed Indexed) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r := t.track(w, req, served, indexed)
		if r == nil {
			inner.ServeHTTP(w, req)
			return
		}
		ctx := req.Context()
		if r.recorder == nil {
			ctx, r.recorder = t.record(ctx)
		}
		defer r.end()
		inner.ServeHTTP(responsewriter.WrapForHTTP1Or2(r), req.WithContext(ctx))
		r.complete = true
	})
}

// track returns nil for a request that is not to be tracked.
func (t *Tracker) track(w http.ResponseWriter, req *http.Request, served Served, indexed Indexed) *read {
	ctx := req.Context()
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest || !isRead(info.Verb) {
		return nil
	}
	analysed := analysisOf(ctx)
	if analysed == nil && annexed.HasRecorder(ctx) {
		return nil
	}
	requester, ok := genericapirequest.UserFrom(ctx)
	if !ok || serving.IsLoopback(ctx) {
		return nil
	}
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	isServed := func() bool { return served(resource, info.Subresource) }
	if !isServed() {
		return nil
	}
	r := &read{
		ResponseWriter: w,
		tracker:        t,
		annotate:       func(reading annexed.Reading) { annotate(ctx, info.Verb, reading) },
		served:         isServed,
		indexed:        func(index string) bool { return indexed(resource.GroupResource(), index) },
		ended:          ctx.Err,
	}
	if analysed != nil {
		r.recorder = analysed.recorder
		r.annotate = func(reading annexed.Reading) {
			annotate(ctx, info.Verb, reading)
			analysed.annotate(info.Verb, reading)
		}
	}
	r.key = key{
		user: userOf(requester), verb: info.Verb,
		group: info.APIGroup, version: info.APIVersion, resource: info.Resource,
		selector: shapeOf(info),
	}
	r.key.client, r.version = clientOf(req.UserAgent())
	if info.Subresource != "" {
		r.key.resource += "/" + info.Subresource
	}
	return r
}

// anyVersion stands for all versions of a resource.
const anyVersion = ""

// Declared reports whether a version of a resource is declared, served or not, with
// the subresource unless that is empty. Of an empty version it is whether any is.
// What is Served is declared.
type Declared func(resource schema.GroupVersionResource, subresource string) bool

// Forget drops the rows and series of a resource that are not declared any more. It is
// to be called when a definition has changed or went, so that what is kept of
// resources, versions and subresources that come and go has a bound. It may be called
// late: what declared says while it runs is what counts.
func (t *Tracker) Forget(resource schema.GroupResource, declared Declared) {
	t.table.forget(resource, declared)
	t.counters.forget(resource, declared)
}

// ForgetIndexes drops the series of the indexes that a resource has no more. It is to be
// called when a cache has ended. A read that went through such an index and ends
// later has no series.
func (t *Tracker) ForgetIndexes(resource schema.GroupResource, indexed Indexed) {
	t.counters.forgetIndexes(resource, indexed)
}

const verbWatch = "watch"

func isRead(verb string) bool {
	return verb == "get" || verb == "list" || verb == verbWatch
}
