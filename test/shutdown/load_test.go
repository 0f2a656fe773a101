// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const gadgets = "/apis/lab.annex.test/v1/namespaces/" + namespace + "/gadgets"

// load is what clients do all the time.
type load struct {
	t      *testing.T
	run    string
	cancel context.CancelFunc
	work   sync.WaitGroup

	lock sync.Mutex
	// requests counts those that were answered as they should, failures those that were not.
	requests int
	failures []string
	created  map[string]bool
}

// startLoad has every client write, list and get, each in several goroutines over one connection.
func startLoad(ctx context.Context, t *testing.T, clients map[string]*client) *load {
	t.Helper()
	l := &load{t: t, run: fmt.Sprintf("%x", time.Now().UnixNano()), created: map[string]bool{}}
	ctx, l.cancel = context.WithCancel(ctx)
	for name, c := range clients {
		for i := range 4 {
			l.work.Go(func() { l.write(ctx, c, fmt.Sprintf("%s-%s-%d", l.run, name, i)) })
		}
		for _, query := range []string{"?limit=5", "?resourceVersion=0", "?fieldSelector=spec.color%3Dred"} {
			l.work.Go(func() { l.read(ctx, name, c, gadgets+query) })
		}
	}
	return l
}

// write creates, changes and deletes one object after another. Every third one stays.
func (l *load) write(ctx context.Context, c *client, prefix string) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%04d", prefix, i)
		body := fmt.Appendf(nil, `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":%q},"spec":{"color":"red"}}`, name)
		if l.do(ctx, prefix, c, http.MethodPost, gadgets, body, http.StatusCreated) {
			l.lock.Lock()
			l.created[name] = true
			l.lock.Unlock()
		}
		l.do(ctx, prefix, c, http.MethodPatch, gadgets+"/"+name, []byte(`{"spec":{"size":2}}`), http.StatusOK)
		if i%3 != 0 {
			l.do(ctx, prefix, c, http.MethodDelete, gadgets+"/"+name, nil, http.StatusOK)
		}
	}
}

func (l *load) read(ctx context.Context, name string, c *client, path string) {
	for ctx.Err() == nil {
		l.do(ctx, name, c, http.MethodGet, path, nil, http.StatusOK)
	}
}

func (l *load) do(ctx context.Context, name string, c *client, method, path string, body []byte, want int) bool {
	got, err := c.do(ctx, method, path, body)
	if ctx.Err() != nil {
		return false // the load is over; what became of it does not matter
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	if err != nil || got.code != want {
		l.failures = append(l.failures, fmt.Sprintf("%s: %s %s: %d %.300s %v", name, method, path, got.code, got.body, err))
		return false
	}
	l.requests++
	return true
}

// waitRequests waits until n more requests have succeeded.
func (l *load) waitRequests(ctx context.Context, n int) {
	l.t.Helper()
	count := func() int {
		l.lock.Lock()
		defer l.lock.Unlock()
		return l.requests
	}
	for target := count() + n; count() < target; {
		select {
		case <-ctx.Done():
			l.t.Fatalf("%d requests were answered, want %d; failures: %q", count(), target, l.failures)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// follower is a client that watches, and goes on where a watch has ended.
type follower struct {
	name string
	lock sync.Mutex
	seen map[string]bool
	// version is that of the last event.
	version string
	watches int
	failure error
}

// startFollower begins at the state of now.
func startFollower(ctx context.Context, t *testing.T, name string, c *client, work *sync.WaitGroup) *follower {
	t.Helper()
	got, err := c.do(ctx, http.MethodGet, gadgets+"?limit=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	list := metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(got.body, &list); err != nil {
		t.Fatal(err)
	}
	f := &follower{name: name, seen: map[string]bool{}, version: list.ResourceVersion}
	work.Go(func() {
		for ctx.Err() == nil && f.failure == nil {
			if err := f.follow(ctx, c); err != nil && ctx.Err() == nil {
				f.lock.Lock()
				f.failure = err
				f.lock.Unlock()
			}
		}
	})
	return f
}

// follow is one watch. Its end is no error.
func (f *follower) follow(ctx context.Context, c *client) error {
	f.watches++
	response, err := c.begin(ctx, http.MethodGet, gadgets+"?watch=1&allowWatchBookmarks=true&resourceVersion="+f.version, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("watch %d: %s", f.watches, response.Status)
	}
	decoder := json.NewDecoder(response.Body)
	for {
		event := struct {
			Type   watch.EventType
			Object metav1.PartialObjectMetadata
		}{}
		if err := decoder.Decode(&event); err != nil {
			return nil // however it ends, the next one goes on
		}
		if event.Type == watch.Error {
			return fmt.Errorf("watch %d from %s has an error", f.watches, f.version)
		}
		f.lock.Lock()
		f.version = event.Object.ResourceVersion
		if event.Type == watch.Added {
			f.seen[event.Object.Name] = true
		}
		f.lock.Unlock()
	}
}

// missing are the objects of which the follower has not seen that they were created.
func (f *follower) missing(created map[string]bool) (names []string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for name := range created {
		if !f.seen[name] {
			names = append(names, name)
		}
	}
	return names
}
