// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
)

// asked is a server that counts what is asked of it: the method, the path and what is selected.
func asked(t *testing.T, answer string) (*rest.Config, map[string]int) {
	t.Helper()
	counts := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		counts[r.Method+" "+r.URL.Path+" "+query.Get("fieldSelector")+query.Get("labelSelector")]++
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}, counts
}

// TestSelectiveListsAreNeverTheSame demands that annex, which remembers what the host has said about
// a user and a selector, has to ask again in every list.
func TestSelectiveListsAreNeverTheSame(t *testing.T) {
	config, counts := asked(t, `{"metadata":{"resourceVersion":"7"},"items":[]}`)
	with, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer with.Close()
	const rounds, lists = 3, 2
	c := &cluster.Cluster{Options: cluster.Options{Sizes: cluster.Sizes{Shape: dataset.Shape{Nodes: 100, Namespaces: 100}}}}
	s := newListSelective(false)
	s.pace, s.clients = pace{atLeast: lists, atMost: lists}, clients{"host": with}
	for range rounds {
		if _, err := s.Round(t.Context(), c, cluster.Side{Name: "host", Config: config}); err != nil {
			t.Fatal(err)
		}
	}
	for what, count := range counts {
		if count > 1 {
			t.Errorf("%s was asked for %d times", what, count)
		}
	}
	if want := rounds * lists * len(selectors()) * len(freshnesses()); len(counts) != want {
		t.Errorf("%d different lists were asked for, wanted are %d", len(counts), want)
	}
}

// TestFloodWritesOtherObjects demands the same of the objects that a flood writes.
func TestFloodWritesOtherObjects(t *testing.T) {
	config, counts := asked(t, `{}`)
	f, err := newFlood(cluster.Side{Config: config}, cluster.Sizes{Shape: dataset.Shape{Nodes: 1, Namespaces: 1}})
	if err != nil {
		t.Fatal(err)
	}
	const objects = 4
	for range objects {
		for turn := range 3 {
			for n := range floodWriters {
				if err := f.write(t.Context(), n, turn); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	creates := 0
	for what, count := range counts {
		if what[:len(http.MethodPost)] == http.MethodPost {
			creates += count
			delete(counts, what)
		} else if count > 1 {
			t.Errorf("%s was asked for %d times", what, count)
		}
	}
	if want := 2 * objects * floodWriters; creates != objects*floodWriters || len(counts) != want {
		t.Errorf("%d objects were created, and %d requests were for one by name; wanted are %d and %d", creates, len(counts), objects*floodWriters, want)
	}
}

func TestRepeatedRequestsAreCounted(t *testing.T) {
	var requests, repeated atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, `{"kind":"Endpoint","apiVersion":"a/v1","metadata":{"name":"e"}}`)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &repeatCounter{next, &repeated} })
	with, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = with.Resource(dataset.Resource("a", dataset.Endpoints)).Namespace("n").Get(t.Context(), "e", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if requests.Load() != 2 || repeated.Load() != 1 {
		t.Errorf("%d requests were sent and %d counted as repeated, wanted are 2 and 1", requests.Load(), repeated.Load())
	}
}
