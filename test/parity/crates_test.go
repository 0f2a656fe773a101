// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kubeannex/annex/test/env"
)

const (
	// cratesVariable says how many objects the rebuild of large caches is tested with.
	cratesVariable = "ANNEX_REBUILD_OBJECTS"
	defaultCrates  = 20_000
	// putsAtOnce is below what etcd takes in one transaction.
	putsAtOnce = 100
)

// cratePatience is how long a change of a large kind may take.
func cratePatience(count int) time.Duration {
	return time.Minute + time.Duration(count)*2*time.Millisecond
}

func crateCount(t *testing.T) int {
	t.Helper()
	text := os.Getenv(cratesVariable)
	if text == "" {
		return defaultCrates
	}
	count, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", cratesVariable, err)
	}
	return count
}

// crate has one of 100 teams, which is indexed, of 50 colours, which are too, and of 3 shelves, which are not.
func crate(namespace string, i int) *unstructured.Unstructured {
	object := env.Object("Crate", namespace, fmt.Sprintf("crate-%06d", i), map[string]any{"color": fmt.Sprintf("c%d", i%50)})
	object.SetLabels(map[string]string{"team": fmt.Sprintf("t%d", i%100), "shelf": fmt.Sprintf("s%d", i%3)})
	object.SetUID(uuid.NewUUID())
	object.SetGeneration(1)
	object.SetCreationTimestamp(metav1.Now())
	return object
}

// putCrates writes crates into etcd, as creating so many would take longer than what is tested.
func (s *session) putCrates(count int) {
	s.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.target.etcd.URL}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // nothing is lost with it
	var group errgroup.Group
	group.SetLimit(4)
	for first := 0; first < count; first += putsAtOnce {
		group.Go(func() error {
			var puts []clientv3.Op
			for i := first; i < min(first+putsAtOnce, count); i++ {
				object := crate(s.namespace, i)
				value, err := json.Marshal(object)
				if err != nil {
					return err
				}
				puts = append(puts, clientv3.OpPut("/registry/"+env.FixtureGroup+"/crates/"+s.namespace+"/"+object.GetName(), string(value)))
			}
			_, err := client.Txn(s.t.Context()).Then(puts...).Commit()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		s.t.Fatal(err)
	}
}

// forgetCrates takes most crates out of etcd, as their finalizer would take minutes for them.
func (s *session) forgetCrates(count int) {
	s.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.target.etcd.URL}})
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // nothing is lost with it
	key := func(i int) string {
		return "/registry/" + env.FixtureGroup + "/crates/" + s.namespace + "/" + crate(s.namespace, i).GetName()
	}
	if _, err := client.Delete(s.t.Context(), key(2000), clientv3.WithRange(key(count))); err != nil {
		s.t.Fatal(err)
	}
}

// crateReading is a request and how many crates its answer has.
type crateReading struct {
	query string
	want  int
}

// watched says that the request is a watch, which ends with its cache.
func (r crateReading) watched() bool { return strings.Contains(r.query, "watch=1") }

// crateReadings go through an index, past it, and past all selectors.
func crateReadings(count int) []crateReading {
	const initial = "&watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=5"
	const team, colour, shelf = "labelSelector=team%3Dt7", "fieldSelector=spec.color%3Dc7", "labelSelector=shelf%3Ds0"
	return []crateReading{
		{team, count / 100},
		{team + "&resourceVersion=0", count / 100},
		{team + "&limit=500", min(count/100, 500)},
		{team + initial, count / 100},
		{colour + "&resourceVersion=0", count / 50},
		{colour + "&limit=5", 5},
		{colour + initial, count / 50},
		{shelf + "&resourceVersion=0", (count + 2) / 3},
		{"limit=500", 500},
		{"resourceVersion=0", count},
	}
}

// outcome is how a reading ended.
type outcome int

const (
	right outcome = iota
	// later is 429 with Retry-After, or a watch that ended with its cache.
	later
	// away is what a server may answer that is not ready.
	away
)

// readCrates sends one request. What is neither right nor a refusal fails the test.
func (s *session) readCrates(r crateReading) outcome {
	s.t.Helper()
	raw, err := s.open(s.t.Context(), s.target.api, http.MethodGet, s.of("crates")+"?"+r.query, "")
	if err != nil {
		return away
	}
	defer raw.Body.Close()
	if raw.StatusCode != http.StatusOK {
		if raw.StatusCode == http.StatusServiceUnavailable {
			return away
		}
		body, _ := io.ReadAll(raw.Body)
		s.wantRightOrLater(&response{t: s.t, name: r.query, code: raw.StatusCode, header: raw.Header, body: body})
		return later
	}
	got, whole, err := countCrates(raw.Body, r.watched())
	switch {
	case err != nil:
		return away
	case !whole:
		return later
	case got != r.want:
		s.t.Errorf("%s: got %d crates, want %d", r.query, got, r.want)
	}
	return right
}

// countCrates counts the crates of a list, or of a watch up to the end of its initial events.
func countCrates(body io.Reader, watched bool) (count int, whole bool, err error) {
	if !watched {
		data, err := io.ReadAll(body)
		return bytes.Count(data, []byte(`"kind":"Crate"`)), err == nil, err
	}
	for reader := bufio.NewReader(body); ; {
		line, err := reader.ReadBytes('\n')
		switch {
		case err != nil:
			return count, false, nil
		case bytes.Contains(line, []byte(metav1.InitialEventsAnnotationKey)):
			return count, true, nil
		case !bytes.HasPrefix(line, []byte(`{"type":"ADDED"`)):
			return count, false, nil
		}
		count++
	}
}
