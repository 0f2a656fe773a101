// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// initialEventsLimit is how soon a stream has to tell that its initial events are over,
// though nobody writes. Servers ask etcd for news several times a second meanwhile.
const initialEventsLimit = 10 * time.Second

// partialObject is what tests look at of an object in a watch.
type partialObject struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta   `json:"metadata"`
	Rows            []metav1.TableRow   `json:"rows"`
	Code            int                 `json:"code"`
	Reason          metav1.StatusReason `json:"reason"`
}

// inTable returns the object of an event, which a Table has in its only row.
func (e event) inTable() (kind string, object partialObject, err error) {
	if err := json.Unmarshal(e.Object, &object); err != nil {
		return "", object, err
	}
	if object.Kind != "Table" {
		return object.Kind, object, nil
	}
	if len(object.Rows) != 1 {
		return "", object, fmt.Errorf("a table of %d rows", len(object.Rows))
	}
	err = json.Unmarshal(object.Rows[0].Object.Raw, &object)
	return "Table", object, err
}

// streaming is a watch with initial events.
type streaming struct{ version, accept, selection string }

// String names it in a failure.
func (w streaming) String() string {
	return fmt.Sprintf("%s, resourceVersion=%s as %s", w.selection, w.version, w.accept)
}

// TestInitialEventsEnd reproduces antrea-io/antrea 8140, cozystack/cozystack 2786 and
// kubernetes/kubernetes 122805: the bookmark at the end of the initial events did not say so, or did not
// come, and informers waited for ever.
func TestInitialEventsEnd(t *testing.T) {
	const media = "application/json;v=v1;g=meta.k8s.io;as="
	accepts := map[string]string{
		"Gadget": jsonType, "Table": media + "Table", "PartialObjectMetadata": media + "PartialObjectMetadata",
	}
	compareIndexed(t, func(s *session) {
		var watches []streaming
		for name := range orderedSelections() {
			for _, version := range []string{"", "0", s.now()} {
				for _, accept := range sortedKeys(accepts) {
					watches = append(watches, streaming{version, accept, name})
				}
			}
		}
		var group sync.WaitGroup
		turns := make(chan struct{}, 16)
		for _, w := range watches {
			group.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				if err := s.checkInitialEvents(w, accepts[w.accept]); err != nil {
					s.t.Errorf("%s: %v", w, err)
				}
			})
		}
		group.Wait()
		for name, wanted := range orderedSelections() {
			parameters := wanted.parameters()
			parameters.Set("watch", "1")
			parameters.Set("sendInitialEvents", "true")
			s.page(name+", no resourceVersionMatch", parameters).wantStatus(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "resourceVersionMatch")
		}
	}, teamWatch)
}

// checkInitialEvents demands an ADDED for each object that matches, then at once the
// bookmark at the end of them, at the version of the request or a later one.
func (s *session) checkInitialEvents(w streaming, accept string) error {
	s.t.Helper()
	wanted := selections()[w.selection]
	parameters := wanted.parameters()
	for name, value := range map[string]string{
		"watch": "1", "sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan",
		"timeoutSeconds": "60", "resourceVersion": w.version,
	} {
		parameters.Set(name, value)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(s.t.Context(), initialEventsLimit)
	defer cancel()
	answer, err := s.open(ctx, s.target.api, http.MethodGet, s.gadgets()+"?"+parameters.Encode(), "", "Accept", accept)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %d", answer.StatusCode)
	}
	names := []string{}
	for decoder := json.NewDecoder(answer.Body); ; {
		var next event
		if err := decoder.Decode(&next); err != nil {
			return fmt.Errorf("no end after %d events and %s: %w", len(names), time.Since(begin), err)
		}
		kind, object, err := next.inTable()
		switch {
		case err != nil:
			return err
		case kind != w.accept:
			return fmt.Errorf("%s of a %s", next.Type, kind)
		case next.Type == "ADDED":
			names = append(names, object.Metadata.Name)
			continue
		case next.Type != "BOOKMARK" || object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] != "true":
			return fmt.Errorf("got %s %s, want a bookmark that ends the initial events", next.Type, next.Object)
		}
		slices.Sort(names)
		if diff := cmp.Diff(wanted.names(s.t), names); diff != "" {
			return fmt.Errorf("initial events (-want +got):\n%s", diff)
		}
		return notOlder(object.Metadata.ResourceVersion, w.version)
	}
}

// notOlder compares resource versions; "" is older than all.
func notOlder(got, than string) error {
	version, err := strconv.ParseUint(got, 10, 64)
	if err != nil {
		return fmt.Errorf("the version of the bookmark: %w", err)
	}
	if limit, err := strconv.ParseUint(than, 10, 64); err == nil && version < limit {
		return fmt.Errorf("the bookmark is at %d, older than the request", version)
	}
	return nil
}
