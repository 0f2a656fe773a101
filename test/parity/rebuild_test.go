// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bytes"
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
)

// shelves are the objects of a kind whose caches are made anew. Labels and colours are those of the stock.
const shelves = 200

func shelf(namespace string, i int) *unstructured.Unstructured {
	object := stockGadget(i)
	object.SetKind("Shelf")
	object.SetNamespace(namespace)
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

// installShelves defines the kind, indexed at annex by label and field, and fills it.
func (s *session) installShelves() {
	s.t.Helper()
	s.install("shelves", definition("shelves", "Shelf", `{"type":"object","properties":{"spec":{"type":"object",
		"x-kubernetes-preserve-unknown-fields":true,"properties":{"color":{"type":"string"}}}}}`,
		`,"selectableFields":[{"jsonPath":".spec.color"}]`))
	for i := range shelves {
		s.create(s.of("shelves"), shelf(s.namespace, i))
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
				s.changeShelves(round)
				return nil
			})
		}
		s.changeShelves(3)
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
		s.changeShelves(4)
		s.removeShelves()
	})
}

// changeShelves changes the schema, whereupon the server makes a new storage of the kind.
func (s *session) changeShelves(round int) {
	s.t.Helper()
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":"round %d"}]`, round)
	s.ask(s.target.crds, "change the schema", http.MethodPatch, definitions+"/shelves.lab.annex.test", patch, "Content-Type", jsonPatch).want(http.StatusOK)
}

// removeShelves deletes the definition, whose finalizer deletes the objects, and waits for the end of both.
func (s *session) removeShelves() {
	s.t.Helper()
	path := definitions + "/shelves.lab.annex.test"
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
		if !away || !mayBeStarting(raw.StatusCode, body) {
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

// mayBeStarting says that a server that is not ready may answer so. Until it has read from the
// cluster who signs the certificates of clients, it takes them for anonymous.
func mayBeStarting(code int, body []byte) bool {
	return code == http.StatusServiceUnavailable || code == http.StatusForbidden && bytes.Contains(body, []byte("system:anonymous"))
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

// TestRestartNeverAnswersShort is the same for a replica that is killed and started, which has
// forgotten all that its caches knew. Tokens go on at the other replica and at the new
// process (kubernetes/kubernetes 67284), and what is gone from etcd is told (35068).
func TestRestartNeverAnswersShort(t *testing.T) {
	compareAt(t, suite.pairTargets[:1], func(s *session) {
		s.installShelves()
		other := &session{t: s.t, target: suite.pairTargets[1], namespace: s.namespace}
		other.waitForTeamIndex(s.of("shelves"))
		tokens, versions := map[string]string{}, map[string]string{}
		for name, wanted := range readings() {
			page := s.shelfPage(name, wanted, "limit", "5").want(http.StatusOK)
			tokens[name], versions[name] = page.more(), page.version()
			other.goOn(name+" at the other replica", wanted, tokens[name])
		}
		// The caches of the new process begin after these writes.
		s.create(s.of("shelves"), shelf(s.namespace, shelves))
		s.ask(s.target.api, "delete", http.MethodDelete, s.of("shelves")+"/"+stockGadget(shelves).GetName(), "").want(http.StatusOK)
		replica := suite.pair.Replicas[0]
		if err := replica.Kill(); err != nil {
			s.t.Fatal(err)
		}
		s.readDuring(true, func() error {
			if err := replica.Start(); err != nil {
				return err
			}
			return replica.WaitReady(s.t.Context())
		})
		for name, wanted := range readings() {
			s.goOn(name+" after the restart", wanted, tokens[name])
		}
		compactEtcd(s.t, s.target)
		for name, wanted := range readings() {
			for _, at := range []*session{s, other} {
				at.checkForgotten(name, wanted, tokens[name], versions[name])
			}
		}
		s.removeShelves()
	})
}

// checkForgotten demands that a token of a compacted version is refused with one that leads
// on, and a watch from before that version with 410.
func (s *session) checkForgotten(name string, wanted selection, token, version string) {
	s.t.Helper()
	if refused := s.shelfPage(name, wanted, "continue", token); refused.code == http.StatusGone {
		s.goOn(name+" after the refusal", wanted, refused.more())
	} else if s.target == suite.pairTargets[0] {
		s.t.Errorf("%s: a compacted token is answered by %d", refused.name, refused.code)
	} else {
		s.goOn(name+" from memory", wanted, token) // the cache of this replica knows the version
	}
	if s.target == suite.pairTargets[0] {
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
