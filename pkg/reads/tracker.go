// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/utils/clock"

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

// Handler puts the tracker before the handler of the resources. It belongs behind
// authentication, authorization and whatever else refuses requests that come to no
// read. Only resources that are served are tracked, so that nobody can make up
// names. The server's own reads are not, nor those whose context has a Recorder already.
func (t *Tracker) Handler(inner http.Handler, served func(schema.GroupVersionResource) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r := t.track(w, req, served)
		if r == nil {
			inner.ServeHTTP(w, req)
			return
		}
		ctx, recorder := t.record(req.Context())
		r.recorder = recorder
		defer r.end()
		inner.ServeHTTP(responsewriter.WrapForHTTP1Or2(r), req.WithContext(ctx))
		r.complete = true
	})
}

// track returns nil for a request that is not to be tracked.
func (t *Tracker) track(w http.ResponseWriter, req *http.Request, served func(schema.GroupVersionResource) bool) *read {
	ctx := req.Context()
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest || !isRead(info.Verb) || annexed.HasRecorder(ctx) {
		return nil
	}
	requester, ok := genericapirequest.UserFrom(ctx)
	if !ok || requester.GetName() == user.APIServerUser {
		return nil
	}
	if !served(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}) {
		return nil
	}
	return &read{
		ResponseWriter: w,
		tracker:        t,
		annotate:       func(reading annexed.Reading) { annotate(ctx, info.Verb, reading) },
		key: key{
			client: clientOf(req.UserAgent()), user: userOf(requester.GetName()),
			verb: info.Verb, group: info.APIGroup, version: info.APIVersion, resource: info.Resource,
			selector: shapeOf(info),
		},
	}
}

const verbWatch = "watch"

func isRead(verb string) bool {
	return verb == "get" || verb == "list" || verb == verbWatch
}
