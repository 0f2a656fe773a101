// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/dataset"
)

// frame is a watch event of an endpoint.
func frame(kind string, node, number int) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":"e"},"spec":{"nodeName":%q},"status":{"lastSeen":"%020d"}}}`+"\n",
		kind, dataset.NodeName(node), number)
}

// events reads frames the way a watcher does.
func events(t *testing.T, frames ...string) []client.Event {
	t.Helper()
	var events []client.Event
	for _, text := range frames {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader(text)) }))
		defer server.Close()
		c, err := client.New(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		watch, err := c.Watch(t.Context(), server.URL)
		if err != nil {
			t.Fatal(err)
		}
		event, err := watch.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := watch.Close(); err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
	return events
}

func TestUpdatesCheckEvents(t *testing.T) {
	const first, count, nodes = 100, 3, 2
	for name, tc := range map[string]struct {
		node   int
		frames []string
		want   string
	}{
		"both of a node":      {node: 0, frames: []string{frame("MODIFIED", 0, 100), frame("MODIFIED", 0, 102)}},
		"of another node":     {node: 1, frames: []string{frame("MODIFIED", 0, 102)}, want: "the watcher of node-0001 got the event of e"},
		"twice":               {node: 1, frames: []string{frame("MODIFIED", 1, 101), frame("MODIFIED", 1, 101)}, want: "the watcher of node-0001 got an event of e twice"},
		"of updates before":   {node: 1, frames: []string{frame("MODIFIED", 1, 99)}, want: "the watcher of node-0001 got a MODIFIED of e that nobody sent"},
		"of updates to come":  {node: 1, frames: []string{frame("MODIFIED", 1, 103)}, want: "the watcher of node-0001 got a MODIFIED of e that nobody sent"},
		"none of an update":   {node: 0, frames: []string{frame("DELETED", 0, 100)}, want: "the watcher of node-0000 got a DELETED of e that nobody sent"},
		"of a moved endpoint": {node: 0, frames: []string{frame("MODIFIED", 1, 100)}, want: "the watcher of node-0000 got the event of e"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpdates(first, count, nodes, 0)
			for i := range count {
				u.sending(i)
			}
			got := ""
			for _, event := range events(t, tc.frames...) {
				if err := u.event(tc.node, event); err != nil {
					got = err.Error()
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("error differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpdatesAreSeenWhenAllEventsAreThere(t *testing.T) {
	u := newUpdates(0, 3, 2, 0)
	for i, event := range events(t, frame("MODIFIED", 0, 0), frame("MODIFIED", 1, 1), frame("MODIFIED", 0, 2)) {
		select {
		case <-u.seen:
			t.Fatalf("all were seen after %d events", i)
		default:
		}
		u.sending(i)
		if err := u.event(i%2, event); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.wait(t.Context()); err != nil {
		t.Error(err)
	}
	if got := u.latencies(); got.Count != 3 || got.Min <= 0 {
		t.Errorf("latencies are %+v, wanted are 3 above 0", got)
	}
}
