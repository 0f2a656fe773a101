// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// watchSeconds ends a watch that nobody ends before.
	watchSeconds = 60
	// quietTime is how long a stream has to be silent after its last event.
	quietTime = 2 * time.Second
	// maxWatches is how many watches run at the same time.
	maxWatches = 400
)

func watchQueries(r *resource) []query {
	var all []query
	for _, s := range r.selectors() {
		for _, kind := range allRVs() {
			for _, m := range allMatches() {
				for _, limit := range []int{0, 500} {
					for _, t := range []token{tokenNone, tokenCached} {
						for _, initial := range []flagValue{absent, yes, no} {
							for _, bookmarks := range []flagValue{absent, yes} {
								all = append(all, query{
									verb: watch, rv: kind, match: m, limit: limit, token: t, selector: s,
									initial: initial, bookmarks: bookmarks,
								})
							}
						}
					}
				}
			}
		}
	}
	return all
}

// CheckWatch does the same for WATCH.
func CheckWatch(t *testing.T, w *World) {
	t.Helper()
	for _, r := range w.resources {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			watchAll(t, w, r, watchQueries(r))
		})
	}
}

// watchAll runs all watches that the same server serves beside each other, and
// compares what they cost etcd together.
func watchAll(t *testing.T, w *World, r *resource, queries []query) {
	t.Helper()
	hits := map[int]int{}
	groups := map[server][]query{}
	for _, q := range queries {
		want := expect(q)
		hits[want.index]++
		groups[want.today] = append(groups[want.today], q)
	}
	for _, by := range []server{servedByNobody, servedByCache, servedByConsistent, servedByEtcd} {
		before := w.clientCounts(r)
		together(t, maxWatches, groups[by], func(q query, want expectation) error { return sendWatch(t.Context(), w, r, q, want) })
		if diff := w.compareCosts(r, by.costs(watch, len(groups[by])), before); diff != "" {
			t.Errorf("requests to etcd of %d watches served by %s (-want +got):\n%s", len(groups[by]), by, diff)
		}
		t.Logf("%d watches answered by %s", len(groups[by]), by)
	}
	reportHits(t, watch, hits)
}

// sendWatch sends a WATCH and compares what comes. A stream is read until all
// events that are due are there, and then for quietTime more.
func sendWatch(ctx context.Context, w *World, r *resource, q query, want expectation) error {
	if want.content == nothing {
		return send(ctx, w, r, q, want)
	}
	begin := time.Now()
	due := expectStream(w, r, q, want.content)
	stream, err := w.openStream(ctx, q.url(w, r))
	if err != nil {
		return err
	}
	defer stream.close()
	if want.content == errorEvent {
		all, ended := stream.readAll()
		if !ended {
			return fmt.Errorf("the stream does not end: %s", all)
		}
		return compareErrorEvent(all, time.Since(begin), want)
	}
	all, ended := stream.read(len(due))
	if ended {
		return fmt.Errorf("the stream ended after %s: %s", time.Since(begin), all)
	}
	return compareStream(w, r, q, due, all)
}

func compareErrorEvent(all []frame, took time.Duration, want expectation) error {
	if len(all) != 1 || all[0].Type != "ERROR" {
		return fmt.Errorf("the stream is %s, want one ERROR event", all)
	}
	if want.waits && took < cacheTimeout {
		return fmt.Errorf("error after %s, want at least %s", took, cacheTimeout)
	}
	var status metav1.Status
	if err := json.Unmarshal(all[0].Object, &status); err != nil {
		return fmt.Errorf("decoding %s: %w", all[0].Object, err)
	}
	return compareStatus(status, want)
}

// expectStream is expectEvents with the bookmark that ends the initial events.
func expectStream(w *World, r *resource, q query, want content) []string {
	due := expectEvents(w, r, q, want)
	if want == initialEvents && q.bookmarks == yes {
		due = append(due, "BOOKMARK true")
	}
	return due
}

// compareStream compares events one by one. A BOOKMARK that marks the end of
// the initial events has to follow them at once when it was asked for; other
// bookmarks may come last, when bookmarks are allowed.
func compareStream(w *World, r *resource, q query, due []string, all []frame) error {
	events := []string{}
	for _, f := range all {
		var i item
		if err := json.Unmarshal(f.Object, &i); err != nil {
			return fmt.Errorf("decoding %s: %w", f.Object, err)
		}
		o, err := r.objectOf(i)
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", f.Type, f.Object, err)
		}
		switch end := i.Metadata.Annotations[metav1.InitialEventsAnnotationKey]; {
		case f.Type != "BOOKMARK":
			events = append(events, f.Type+" "+o.String())
		case end != "":
			events = append(events, "BOOKMARK "+end)
			if o.revision < w.revisions[rvCurrent] {
				return fmt.Errorf("the bookmark at the end of the initial events is at %d, before the current revision", o.revision)
			}
		case q.bookmarks != yes:
			return fmt.Errorf("unwanted bookmark %s", f.Object)
		}
		if i.Kind != r.kind || i.APIVersion != r.groupVersion {
			return fmt.Errorf("%s of a %s in %s, want %s in %s", f.Type, i.Kind, i.APIVersion, r.kind, r.groupVersion)
		}
	}
	if diff := cmp.Diff(due, events); diff != "" {
		return fmt.Errorf("events (-want +got):\n%s", diff)
	}
	return nil
}
