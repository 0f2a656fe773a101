// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubeannex/annex/test/env"
)

// shelves are the objects of a kind whose caches are made anew. Labels and colours are those of the stock.
const shelves = 200

func shelf(i int) *unstructured.Unstructured {
	object := stockGadget(i)
	object.SetKind("Shelf")
	return object
}

// readings are the requests during a rebuild: past an index and through one.
func readings() map[string]selection {
	all := selections()
	readings := map[string]selection{}
	for _, name := range []string{"everything", "indexed label", "indexed label, not", "other label", "field", "field, not"} {
		readings[name] = all[name]
	}
	return readings
}

// shelfNames are those of the shelves that match.
func (q selection) shelfNames(t *testing.T) []string {
	t.Helper()
	last := stockGadget(shelves).GetName()
	return slices.DeleteFunc(q.names(t), func(name string) bool { return name >= last })
}

// colouredDefinition is the JSON of a CRD with a selectable field.
func colouredDefinition(plural, kind string) string {
	return definition(plural, kind, `{"type":"object","properties":{"spec":{"type":"object",
		"x-kubernetes-preserve-unknown-fields":true,"properties":{"color":{"type":"string"}}}}}`,
		`,"selectableFields":[{"jsonPath":".spec.color"}]`)
}

// installShelves defines the kind, indexed at annex by label and field, and fills it.
func (s *session) installShelves() {
	s.t.Helper()
	s.install("shelves", colouredDefinition("shelves", "Shelf"))
	for i := range shelves {
		s.create(s.of("shelves"), shelf(i))
	}
	if s.target != suite.hostTarget {
		declareTeamIndex(s.t, s.target, "shelves")
		s.waitForTeamIndex(s.of("shelves"))
	}
}

// TestRebuildNeverAnswersShort reproduces operator-framework/java-operator-sdk 2526 and
// rancher-sandbox/rancher-desktop-2 164: while the cache of a kind is made anew because its definition
// changes, requests are answered by all that is there or refused with 429 and Retry-After.
func TestRebuildNeverAnswersShort(t *testing.T) {
	compare(t, func(s *session) {
		s.installShelves()
		for round := range 3 {
			s.readDuring(false, func() error {
				s.changeDefinition("shelves", round)
				return nil
			})
		}
		s.changeDefinition("shelves", 3)
		s.until("the deletion of a collection", func() bool {
			answer := s.ask(s.target.api, "delete a collection", http.MethodDelete, s.of("shelves")+"?labelSelector=team%3Da", "")
			s.wantRightOrLater(answer)
			return answer.code == http.StatusOK
		})
		s.until("the list of what is left", func() bool {
			left := s.ask(s.target.api, "list what is left", http.MethodGet, s.of("shelves")+"?labelSelector=team%3Da", "")
			s.wantRightOrLater(left)
			if left.code == http.StatusOK && len(left.items()) != 0 {
				s.t.Errorf("left of a deleted collection: %v", left.itemNames())
			}
			return left.code == http.StatusOK
		})
		s.changeDefinition("shelves", 4)
		s.removeDefinition("shelves")
	})
}

// changeDefinition changes a schema, whereupon the server makes a new storage of the kind.
func (s *session) changeDefinition(plural string, round int) *response {
	s.t.Helper()
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":"round %d"}]`, round)
	return s.ask(s.target.crds, "change the schema", http.MethodPatch, definitions+"/"+plural+"."+env.FixtureGroup, patch, "Content-Type", jsonPatch).want(http.StatusOK)
}

// removeDefinition deletes a definition, whose finalizer deletes the objects, and waits for the end of both.
func (s *session) removeDefinition(plural string) {
	s.t.Helper()
	path := definitions + "/" + plural + "." + env.FixtureGroup
	s.ask(s.target.crds, "delete the CRD", http.MethodDelete, path, "").want(http.StatusOK)
	s.until("the end of the CRD", func() bool {
		return s.ask(s.target.crds, "GET the CRD", http.MethodGet, path, "").code == http.StatusNotFound
	})
}

// wantRightOrLater demands success or a refusal that says when to come again.
func (s *session) wantRightOrLater(answer *response) {
	s.t.Helper()
	if answer.code == http.StatusOK || answer.code == http.StatusTooManyRequests && answer.header.Get("Retry-After") != "" {
		return
	}
	s.t.Errorf("%s: answered %d, Retry-After %q: %.300s", answer.name, answer.code, answer.header.Get("Retry-After"), answer.body)
}

// readDuring reads again and again while change is under way, and then until all
// requests of a round succeed. down says that the server is restarted: then it may
// be away, and may answer 503 while it is not ready.
func (s *session) readDuring(down bool, change func() error) {
	s.t.Helper()
	changed := make(chan error, 1)
	go func() { changed <- change() }()
	over, rounds, refused := false, 0, 0
	s.until("the caches", func() bool {
		select {
		case err := <-changed:
			if err != nil {
				s.t.Fatal(err)
			}
			over = true
		default:
		}
		begunOver, all := over, true
		for name, wanted := range readings() {
			for _, how := range []string{"", "resourceVersion=0", "limit=500", "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=5"} {
				if !s.readsRight(name+", "+how, how, wanted, down && !begunOver) {
					all = false
					refused++
				}
			}
		}
		rounds++
		return begunOver && all
	})
	s.t.Logf("%d rounds of requests, %d refused", rounds, refused)
}

// readsRight sends a request. It returns false when it was refused in a way that is
// allowed, and fails the test when the answer is neither that nor right.
func (s *session) readsRight(name, how string, wanted selection, away bool) bool {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	path := s.of("shelves") + "?" + wanted.parameters().Encode() + "&" + how
	raw, err := s.open(ctx, s.target.api, http.MethodGet, path, "")
	if err != nil {
		if !away {
			s.t.Errorf("%s: %v", name, err)
		}
		return false
	}
	defer raw.Body.Close()
	if raw.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(raw.Body)
		if !away || raw.StatusCode != http.StatusServiceUnavailable {
			s.wantRightOrLater(&response{t: s.t, name: name, code: raw.StatusCode, header: raw.Header, body: body})
		}
		return false
	}
	names, whole := readNames(raw.Body)
	if !whole {
		return false
	}
	if diff := cmp.Diff(wanted.shelfNames(s.t), names); diff != "" {
		s.t.Errorf("%s (-want +got):\n%s", name, diff)
	}
	return true
}

// readNames returns the sorted names of a list, or of the events of a watch until the
// bookmark at their end. The body is not whole when it breaks off, as watches do with their cache.
func readNames(body io.Reader) (names []string, whole bool) {
	type named struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	names = []string{}
	for decoder := json.NewDecoder(body); ; {
		var next struct {
			Type   string  `json:"type"`
			Object named   `json:"object"`
			Items  []named `json:"items"`
		}
		if err := decoder.Decode(&next); err != nil {
			return names, false
		}
		for _, item := range next.Items {
			names = append(names, item.Metadata.Name)
		}
		switch next.Type {
		case "ADDED":
			names = append(names, next.Object.Metadata.Name)
		case "", "BOOKMARK": // a list, or the end of the initial events
			slices.Sort(names)
			return names, true
		default:
			return names, false
		}
	}
}

// TestRestartNeverAnswersShort is the same for replicas that are killed and started, which have
// forgotten all that their caches knew. Tokens go on at the other replica and at the new
// process (kubernetes/kubernetes 67284), those of the refusals too, and what is gone from etcd is told (35068).
func TestRestartNeverAnswersShort(t *testing.T) {
	compareAt(t, suite.pairTargets[:1], func(s *session) {
		s.installShelves()
		other := &session{t: s.t, target: suite.pairTargets[1], namespace: s.namespace}
		other.waitForTeamIndex(s.of("shelves"))
		tokens, versions := map[string]string{}, map[string]string{}
		for name, wanted := range readings() {
			read := s.usedBy()[teamIndex]
			page := s.shelfPage(name, wanted, "limit", "5").want(http.StatusOK)
			if name == "indexed label" && s.usedBy()[teamIndex] == read {
				s.t.Error("the first page is not from the index")
			}
			tokens[name], versions[name] = page.more(), page.version()
			other.goOn(name+" at the other replica", wanted, tokens[name])
		}
		// The caches of the new processes begin after these writes.
		s.create(s.of("shelves"), shelf(shelves))
		s.ask(s.target.api, "delete", http.MethodDelete, s.of("shelves")+"/"+stockGadget(shelves).GetName(), "").want(http.StatusOK)
		s.readDuring(true, func() error { return restart(s.t, 0) })
		for name, wanted := range readings() {
			s.goOn(name+" after the restart", wanted, tokens[name])
		}
		if err := restart(s.t, 1); err != nil {
			s.t.Fatal(err)
		}
		other.waitForTeamIndex(s.of("shelves"))
		compactEtcd(s.t, s.target)
		for name, wanted := range readings() {
			s.checkForgotten(name, wanted, tokens[name], versions[name], other)
			other.checkForgotten(name, wanted, tokens[name], versions[name], s)
		}
		s.removeDefinition("shelves")
	})
}

// restart kills a replica of the pair and starts it anew.
func restart(t *testing.T, number int) error {
	t.Helper()
	replica := suite.pair.Replicas[number]
	if err := replica.Kill(); err != nil {
		return err
	}
	if err := replica.Start(); err != nil {
		return err
	}
	return replica.WaitReady(t.Context())
}

// checkForgotten demands that a token of a compacted version is refused with one that leads
// on at any replica, and a watch from before that version with 410.
func (s *session) checkForgotten(name string, wanted selection, token, version string, other *session) {
	s.t.Helper()
	refused := s.shelfPage(name+", a compacted token", wanted, "continue", token)
	refused.wantStatus(http.StatusGone, metav1.StatusReasonExpired)
	for _, at := range []*session{s, other} {
		at.goOn(name+" after the refusal of "+s.target.name, wanted, refused.more())
	}
	before, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	parameters := wanted.parameters()
	parameters.Set("watch", "1")
	parameters.Set("timeoutSeconds", "20")
	parameters.Set("resourceVersion", strconv.FormatInt(before-1, 10))
	s.checkExpired(name, s.of("shelves"), parameters)
}

// shelfPage asks for a page of shelves.
func (s *session) shelfPage(name string, wanted selection, parameter, value string) *response {
	s.t.Helper()
	parameters := wanted.parameters()
	parameters.Set(parameter, value)
	return s.ask(s.target.api, name+" at "+s.target.name, http.MethodGet, s.of("shelves")+"?"+parameters.Encode(), "")
}

// goOn demands that a token leads to all but the first page of five.
func (s *session) goOn(name string, wanted selection, token string) {
	s.t.Helper()
	got := s.shelfPage(name, wanted, "continue", token).want(http.StatusOK).itemNames()
	if diff := cmp.Diff(wanted.shelfNames(s.t)[5:], got); diff != "" {
		s.t.Errorf("%s at %s (-want +got):\n%s", name, s.target.name, diff)
	}
}
