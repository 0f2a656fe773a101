// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

func TestAgentWaitsWhenThrottled(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"7"},"items":[{}]}`))
	}))
	defer server.Close()
	var throttled Throttled
	agent, err := NewAgent(&rest.Config{Host: server.URL}, &throttled)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	answer, err := agent.Get(t.Context(), server.URL, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Expect(1); err != nil {
		t.Error(err)
	}
	requests.Store(0)
	if err := agent.Send(t.Context(), http.MethodGet, server.URL, "", nil); err != nil {
		t.Error(err)
	}
	if got := throttled.Load(); got != 4 {
		t.Errorf("%d requests were put off, wanted are 4", got)
	}
}

func TestAgentClosesItsWatches(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	agent, err := NewAgent(&rest.Config{Host: server.URL}, &Throttled{})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := agent.Watch(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	agent.Close()
	if _, err := watch.Next(); err == nil {
		t.Error("a closed watch has an event")
	}
	<-gone
}

func TestSendRefusesOtherStatus(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json" {
			return
		}
		http.Error(w, "no", http.StatusConflict)
	}))
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(t.Context(), http.MethodPatch, server.URL, "application/merge-patch+json", []byte("{}")); err != nil {
		t.Error(err)
	}
	err = c.Send(t.Context(), http.MethodDelete, server.URL, "", nil)
	if want := "DELETE " + server.URL + ": 409 Conflict no"; err == nil || err.Error() != want {
		t.Errorf("the error is %v, wanted is %q", err, want)
	}
}
