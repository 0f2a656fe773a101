// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
)

// state is what a server says of itself while the caches of crates change.
type state struct {
	// readyz is the code of /readyz, 0 when nobody answers.
	readyz int
	// ready says that crates are answered from filled caches, for the generation of their definition.
	ready      bool
	generation int64
	// empty says that it is ready and no cache of crates was filled by then.
	empty bool
}

// state asks a server.
func (s *session) state() (now state) {
	answer, err := s.open(s.t.Context(), s.target.crds, http.MethodGet, "/readyz", "")
	if err != nil {
		return now
	}
	answer.Body.Close()
	now.readyz = answer.StatusCode
	for _, resource := range s.replica().Resources {
		if resource.Resource == "crates" {
			now.ready, now.generation = resource.Ready, resource.DefinitionGeneration
		}
	}
	if now.ready {
		metrics, err := s.readMetrics()
		_, filled := cachesOf(metrics, "crates")
		now.empty = err == nil && !filled
	}
	return now
}

// observe asks for the state again and again until the function that it returns is called,
// which returns all that was seen.
func (s *session) observe() (end func() []state) {
	ctx, cancel := context.WithCancel(s.t.Context())
	seen := make(chan []state, 1)
	go func() {
		var all []state
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			all = append(all, s.state())
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		seen <- all
	}()
	return func() []state {
		cancel()
		return <-seen
	}
}

// cachesOf is the number of caches of a resource, and whether the last of them is filled.
func cachesOf(metrics []metric, resource string) (count int, filled bool) {
	for _, metric := range metrics {
		switch {
		case metric.labels["resource"] != resource:
		case metric.name == "annex_watch_caches":
			count += metric.value
		case metric.name == "annex_watch_cache_fill_duration_seconds":
			filled = true
		}
	}
	return count, filled
}

// exchanging says that one cache of crates is about to replace another.
func (s *session) exchanging() bool {
	s.t.Helper()
	count, _ := cachesOf(s.metrics(), "crates")
	return count == 2
}

// TestManyObjectsAreNeverAnsweredShort is TestRebuildNeverAnswersShort and TestRestartNeverAnswersShort
// with so many objects that a cache takes seconds to be filled: 20 000, or as many as
// ANNEX_REBUILD_OBJECTS says. Meanwhile /readyz and the replica subresource of the group, which an adoption
// waits for, must not promise more than the replica holds.
//
// /readyz does not wait for caches: annex starts one when somebody needs it, who waits for it
// instead of being refused (docs/adr/0005-indexes.md). That of kube-apiserver does not wait for those
// of custom resources either, whose storage is opened by the first request.
func TestManyObjectsAreNeverAnsweredShort(t *testing.T) {
	count := crateCount(t)
	compareAt(t, suite.pairTargets[:1], func(s *session) {
		s.ask(s.target.crds, "create the CRD", http.MethodPost, definitions, colouredDefinition("crates", "Crate")).want(http.StatusCreated)
		s.until("the CRD to be established", func() bool { return s.established("crates") })
		s.putCrates(count)
		declareTeamIndex(s.t, s.target, "crates")
		s.untilState("the first cache", count, func() bool { return s.state().ready })
		s.readAllCrates(count)

		s.exchangeCrates(count)
		s.redefineCrates(count)
		s.restartCrates(count)

		begin := time.Now()
		s.changeDefinition("crates", 2)
		s.forgetCrates(count)
		s.removeDefinition("crates")
		s.t.Logf("deleted after %s", time.Since(begin))
	})
}

// untilState is until with the patience that a large kind needs.
func (s *session) untilState(what string, count int, holds func() bool) {
	s.t.Helper()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(cratePatience(count))
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			s.t.Fatalf("waited %s for %s: %+v", cratePatience(count), what, s.state())
		}
	}
}

// readAllCrates demands that no reading is refused: the replica has said that it is ready.
func (s *session) readAllCrates(count int) {
	s.t.Helper()
	for _, r := range crateReadings(count) {
		if got := s.readCrates(r); got != right {
			s.t.Errorf("%s: refused by a replica that is ready (%d)", r.query, got)
		}
	}
}

// exchangeCrates declares another index. All readings are answered from one cache or the other.
func (s *session) exchangeCrates(count int) {
	s.t.Helper()
	client, err := versioned.NewForConfig(s.target.crds.config)
	if err != nil {
		s.t.Fatal(err)
	}
	groups := client.KubeannexV1alpha1().AnnexedGroups()
	group, err := groups.Get(s.t.Context(), s.target.group, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	group.Spec.Resources[0].IndexLabels = []string{"team", "shelf"}
	end := s.observe()
	if _, err := groups.Update(s.t.Context(), group, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	during := 0
	exchanged := func() bool {
		before := s.usedBy()["l:shelf"]
		s.readCrates(crateReading{"labelSelector=shelf%3Ds0&resourceVersion=0", (count + 2) / 3})
		return s.usedBy()["l:shelf"] > before
	}
	s.untilState("the declared index", count, func() bool {
		for _, r := range crateReadings(count) {
			between := s.exchanging()
			if got := s.readCrates(r); got == away || got == later && !r.watched() {
				s.t.Errorf("%s: refused while caches are exchanged (%d)", r.query, got)
			}
			if between && s.exchanging() {
				during++
			}
		}
		return exchanged()
	})
	states := end()
	for _, now := range states {
		if now.readyz != http.StatusOK || !now.ready {
			s.t.Errorf("while caches are exchanged the replica says %+v", now)
		}
	}
	if during == 0 {
		s.t.Error("no reading was answered while the next cache was being filled")
	}
	s.t.Logf("exchange: %d readings while there were two caches, %d states", during, len(states))
	s.readAllCrates(count)
}

// redefineCrates changes the definition. Readings are answered whole or refused until the
// replica says that the new generation is ready.
func (s *session) redefineCrates(count int) {
	s.t.Helper()
	end := s.observe()
	generation := s.changeDefinition("crates", 1).object().GetGeneration()
	answered, refused := s.readCratesUntil(count, false, func(now state) bool { return now.ready && now.generation == generation })
	states := end()
	for _, now := range states {
		if now.readyz != http.StatusOK {
			s.t.Errorf("while a definition changes the replica says %+v", now)
		}
	}
	s.t.Logf("definition: %d readings, %d refused, %d states", answered, refused, len(states))
	s.readAllCrates(count)
}

// restartCrates kills and starts the replica. Once /readyz says so, it answers or refuses properly, and
// once it says that crates are ready, it answers.
func (s *session) restartCrates(count int) {
	s.t.Helper()
	replica := suite.pair.Replicas[0]
	if err := replica.Kill(); err != nil {
		s.t.Fatal(err)
	}
	if now := s.state(); now != (state{}) {
		s.t.Errorf("a replica that was killed says %+v", now)
	}
	end := s.observe()
	if err := replica.Start(); err != nil {
		s.t.Fatal(err)
	}
	answered, refused := s.readCratesUntil(count, true, func(now state) bool { return now.readyz == http.StatusOK })
	s.t.Logf("restart: %d readings, %d refused before /readyz", answered, refused)
	answered, refused = s.readCratesUntil(count, false, func(now state) bool { return now.ready })
	s.t.Logf("restart: %d readings, %d refused before the replica was ready", answered, refused)
	states := end()
	for _, now := range states {
		if now.empty {
			s.t.Errorf("without a filled cache a replica that was started says %+v", now)
		}
	}
	s.readAllCrates(count)
}

// readCratesUntil reads, then asks the server, until it says what is waited for. starting says that it may be away.
func (s *session) readCratesUntil(count int, starting bool, holds func(state) bool) (answered, refused int) {
	s.t.Helper()
	s.untilState("the caches", count, func() bool {
		for _, r := range crateReadings(count) {
			got := s.readCrates(r)
			if got == right {
				answered++
			} else {
				refused++
			}
			if got == away && !starting {
				s.t.Errorf("%s: not answered by a server that is ready", r.query)
			}
			if got == away {
				break
			}
		}
		return holds(s.state())
	})
	return answered, refused
}
