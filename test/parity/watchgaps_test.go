// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/test/env"
)

// TestExpiredWatchIsTold reproduces kubernetes/kubernetes 35068 and 72187: who watches from a version
// that is gone is told so at once, by the code of the answer or by its only event.
func TestExpiredWatchIsTold(t *testing.T) {
	compareIndexed(t, func(s *session) {
		old := strconv.FormatInt(s.forget(), 10)
		for name, wanted := range orderedSelections() {
			parameters := wanted.parameters()
			parameters.Set("watch", "1")
			parameters.Set("timeoutSeconds", "20")
			parameters.Set("resourceVersion", old)
			s.checkExpired(name, s.gadgets(), parameters)
		}
	}, teamWatch)
}

// checkExpired demands that a watch is refused by 410 Expired, or ends after one event that says so.
func (s *session) checkExpired(name, collection string, parameters url.Values) {
	s.t.Helper()
	begin := time.Now()
	answer := s.ask(s.target.api, name+", from an expired version", http.MethodGet, collection+"?"+parameters.Encode(), "")
	failure := partialObject{}
	if answer.code == http.StatusOK {
		decoder := json.NewDecoder(strings.NewReader(string(answer.body)))
		var first, second event
		if err := decoder.Decode(&first); err != nil || first.Type != "ERROR" {
			s.t.Fatalf("%s: the first event is not an error (%v): %.300s", answer.name, err, answer.body)
		}
		if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
			s.t.Errorf("%s: the error is not the last event (%v): %.300s", answer.name, err, answer.body)
		}
		answer.body = first.Object
	}
	if err := json.Unmarshal(answer.body, &failure); err != nil || failure.Code != http.StatusGone || failure.Reason != metav1.StatusReasonExpired {
		s.t.Errorf("%s: got %.300s (%v), want 410 Expired", answer.name, answer.body, err)
	}
	if took := time.Since(begin); took > initialEventsLimit {
		s.t.Errorf("%s: told after %s", answer.name, took)
	}
	s.steps = append(s.steps, step{Name: answer.name, Code: answer.code, Body: string(failure.Reason)})
}

// TestExpiredWatchBeforeTheFirstCache is the same for a kind that nobody has read yet: annex has
// etcd answer watches from before the first cache of a kind, and etcd may have forgotten.
func TestExpiredWatchBeforeTheFirstCache(t *testing.T) {
	compareAt(t, []*target{suite.annexTarget, suite.viaTarget}, func(s *session) {
		declareTeamIndex(s.t, s.target, "trays") // before there are any, for it asks the server, which starts their cache
		s.ask(s.target.crds, "create the CRD", http.MethodPost, definitions, colouredDefinition("trays", "Tray")).want(http.StatusCreated)
		s.until("the CRD to be established", func() bool { return s.established("trays") })
		var versions []string
		for i := range 4 {
			tray := stockGadget(i)
			tray.SetKind("Tray")
			versions = append(versions, s.create(s.of("trays"), tray).version())
		}
		compactEtcd(s.t, s.target)
		for name, wanted := range readings() {
			parameters := wanted.parameters()
			parameters.Set("watch", "1")
			parameters.Set("timeoutSeconds", "20")
			parameters.Set("resourceVersion", versions[1])
			s.checkExpired(name, s.of("trays"), parameters)
		}
		s.removeDefinition("trays")
		s.steps = nil // both forms of the refusal are right
	})
}

// mark begins the names of the last gadgets of a drawer. Each selection has one.
const mark = "zz-"

// TestWatchesHaveNoGap has a watch of each selection open while objects come, change from one
// selection to another, and go. What is not told is a gap as silent as that of an expired watch.
func TestWatchesHaveNoGap(t *testing.T) {
	const namespace = "drawer"
	if err := env.EnsureNamespace(t.Context(), suite.hostTarget.api.config, namespace); err != nil {
		t.Fatal(err)
	}
	compareIndexed(t, func(s *session) {
		s.namespace = namespace
		version := s.now()
		var watching sync.WaitGroup
		var told []*step
		for name, wanted := range orderedSelections() {
			parameters := wanted.parameters()
			parameters.Set("watch", "1")
			parameters.Set("timeoutSeconds", "50")
			parameters.Set("resourceVersion", version)
			answer, err := s.open(s.t.Context(), s.target.api, http.MethodGet, s.gadgets()+"?"+parameters.Encode(), "")
			if err != nil {
				s.t.Fatal(err)
			}
			events := &step{Name: "watch by " + name, Code: answer.StatusCode}
			told = append(told, events)
			watching.Go(func() {
				defer answer.Body.Close()
				if events.Body, err = readToMark(answer.Body); err != nil {
					s.t.Errorf("%s: %v after %q", events.Name, err, events.Body)
				}
			})
		}
		s.changeDrawer()
		watching.Wait()
		for _, events := range told {
			s.steps = append(s.steps, *events)
		}
		s.ask(s.target.api, "empty the drawer", http.MethodDelete, s.gadgets(), "").want(http.StatusOK)
	}, teamWatch)
}

// readToMark returns the events of a watch before the first of a mark, as types and names.
func readToMark(body io.Reader) (events string, err error) {
	for decoder := json.NewDecoder(body); ; {
		var next event
		if err := decoder.Decode(&next); err != nil {
			return events, err
		}
		_, object, err := next.inTable()
		if err != nil {
			return events, err
		}
		if strings.HasPrefix(object.Metadata.Name, mark) {
			return events, nil
		}
		events += next.Type + " " + object.Metadata.Name + "\n"
	}
}

// changeDrawer creates gadgets, gives each the labels and fields of the next two, deletes
// half of them, and makes the marks.
func (s *session) changeDrawer() {
	s.t.Helper()
	const count = 20
	path := func(i int) string { return s.gadgets() + "/" + stockGadget(i).GetName() }
	for i := range count {
		s.create(s.gadgets(), stockGadget(i))
	}
	for like := 1; like <= 2; like++ {
		for i := range count {
			object := stockGadget(i + like)
			patch, err := json.Marshal([]map[string]any{
				{"op": "add", "path": "/metadata/labels", "value": object.GetLabels()},
				{"op": "add", "path": "/spec", "value": object.Object["spec"]},
			})
			if err != nil {
				s.t.Fatal(err)
			}
			s.ask(s.target.api, "change", http.MethodPatch, path(i), string(patch), "Content-Type", jsonPatch).want(http.StatusOK)
		}
	}
	for i := range count / 2 {
		s.ask(s.target.api, "delete", http.MethodDelete, path(2*i), "").want(http.StatusOK)
	}
	for name, wanted := range orderedSelections() {
		object := env.Gadget("", "", map[string]any{"hot": true})
		object.SetLabels(map[string]string{"team": "nobody"})
		if matching := wanted.stock(s.t); len(matching) > 0 {
			object = matching[0]
		}
		object.SetName(mark + notInNames.ReplaceAllString(name, "-"))
		s.create(s.gadgets(), object)
	}
}
