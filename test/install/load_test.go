// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/adoption/scenario"
)

const (
	// pace is the pause between two requests of one client.
	pace = 20 * time.Millisecond
	// counted is how many objects are written and watched one write after the other.
	counted = 2
	// listed is how many objects a list finds.
	listed = 200
)

// load is a set of clients of a group, all through kube-apiserver: they get,
// list, write and watch without a pause, and keep what went wrong on the wire.
// What client-go would retry without a word counts too.
type load struct {
	group   *scenario.Group
	writers *scenario.Writers
	cancel  context.CancelFunc
	wait    sync.WaitGroup

	mu       sync.Mutex
	requests map[string]int
	failures []string
	// acknowledged are the last writes of the counted objects, by name.
	acknowledged map[string]int64
	watchers     []*follower
}

// startLoad starts the clients and returns when each has had an answer.
func startLoad(t *testing.T, group *scenario.Group) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	l := &load{group: group, cancel: cancel, requests: map[string]int{}, acknowledged: map[string]int64{}}
	t.Cleanup(func() { l.stop() })
	config := rest.CopyConfig(suite.admin)
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return &witness{inner: inner, load: l} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	gadgets := client.Resource(group.Gadgets("v1")).Namespace(group.Namespaces[0])
	for i := range counted {
		name := fmt.Sprintf("counted-%d", i)
		created, err := gadgets.Create(ctx, group.Object("Gadget", group.Namespaces[0], name, map[string]any{"size": int64(0)}), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			created, err = gadgets.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"size":0}}`), metav1.PatchOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			f := &follower{load: l, client: gadgets, name: name, revision: created.GetResourceVersion()}
			l.watchers = append(l.watchers, f)
			l.wait.Go(func() { f.run(ctx) })
		}
		l.wait.Go(func() { l.write(ctx, gadgets, name) })
		l.wait.Go(func() { l.get(ctx, gadgets, name) })
	}
	l.wait.Go(func() { l.list(ctx, gadgets) })
	removeWritten(t, group)
	l.writers = group.StartWriters(t, 2, config)
	l.writers.WaitWrites(t, 20)
	return l
}

// removeWritten makes room for new writers after those of an earlier load.
func removeWritten(t *testing.T, group *scenario.Group) {
	t.Helper()
	for _, gvr := range []schema.GroupVersionResource{group.Gadgets("v1"), group.Planets()} {
		client := group.HostClient(t, gvr)
		list, err := client.List(testContext(t), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			item := &list.Items[i]
			if !strings.HasPrefix(item.GetName(), scenario.WriterPrefix) {
				continue
			}
			if err := client.Namespace(item.GetNamespace()).Delete(testContext(t), item.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// stop ends the clients after the requests that they are at.
func (l *load) stop() {
	if l.writers != nil {
		l.writers.Stop()
	}
	l.cancel()
	l.wait.Wait()
}

// failf keeps a failure with its time.
func (l *load) failf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (l *load) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests[what]++
}

// write counts up in an object, each number once.
func (l *load) write(ctx context.Context, client dynamic.ResourceInterface, name string) {
	for number := int64(1); ctx.Err() == nil; number++ {
		patch := fmt.Appendf(nil, `{"spec":{"size":%d}}`, number)
		_, err := client.Patch(context.WithoutCancel(ctx), name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			l.failf("writing %d to %s: %v", number, name, err)
			number-- // whether it was written or not, the number must be seen
		} else {
			l.mu.Lock()
			l.acknowledged[name] = number
			l.mu.Unlock()
		}
		pause(ctx)
	}
}

func (l *load) written(name string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acknowledged[name]
}

// get reads an object, which must hold at least what was acknowledged before.
func (l *load) get(ctx context.Context, client dynamic.ResourceInterface, name string) {
	for ctx.Err() == nil {
		least := l.written(name)
		object, err := client.Get(context.WithoutCancel(ctx), name, metav1.GetOptions{})
		if err != nil {
			l.failf("getting %s: %v", name, err)
		} else if got, _, err := unstructured.NestedInt64(object.Object, "spec", "size"); err != nil || got < least {
			l.failf("getting %s: it holds %d (%v), %d was acknowledged", name, got, err, least)
		}
		pause(ctx)
	}
}

// list reads all objects, consistently and from the cache in turns.
func (l *load) list(ctx context.Context, client dynamic.ResourceInterface) {
	for turn := 0; ctx.Err() == nil; turn++ {
		options := metav1.ListOptions{}
		if turn%2 == 1 {
			options.ResourceVersion = "0"
		}
		list, err := client.List(context.WithoutCancel(ctx), options)
		if err != nil {
			l.failf("listing: %v", err)
		} else if len(list.Items) < listed {
			l.failf("listing: %d objects, want at least %d", len(list.Items), listed)
		}
		pause(ctx)
	}
}

// mustBeClean ends the load and fails the test for whatever went wrong.
func (l *load) mustBeClean(t *testing.T) {
	t.Helper()
	l.writers.Stop()
	for _, f := range l.watchers {
		f.mustHaveSeenAll(t)
	}
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(l.requests)) {
		lines = append(lines, fmt.Sprintf("%d %s", l.requests[what], what))
	}
	t.Logf("requests: %s; writers: %s", strings.Join(lines, ", "), l.writers.Summary())
	for _, failure := range l.failures[:min(len(l.failures), 40)] {
		t.Errorf("a request failed: %s", failure)
	}
	if len(l.failures) > 40 {
		t.Errorf("%d requests failed in all", len(l.failures))
	}
	l.writers.MustHaveNoErrors(t)
	l.writers.MustBeKept(t, l.group)
}

// pause keeps the machine usable for the servers.
func pause(ctx context.Context) {
	timer := time.NewTimer(pace)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// witness sees every answer before client-go does.
type witness struct {
	inner http.RoundTripper
	load  *load
}

var _ http.RoundTripper = (*witness)(nil)

// RoundTrip passes a request on and keeps what should not happen.
func (w *witness) RoundTrip(request *http.Request) (*http.Response, error) {
	what := request.Method
	if request.URL.Query().Get("watch") != "" {
		what = "WATCH"
	}
	w.load.count(what)
	answer, err := w.inner.RoundTrip(request)
	switch {
	case err != nil && request.Context().Err() == nil:
		w.load.failf("%s %s: %v", what, request.URL, err)
	case err == nil && (answer.StatusCode >= http.StatusInternalServerError || answer.StatusCode == http.StatusTooManyRequests):
		w.load.failf("%s %s: %s", what, request.URL, answer.Status)
	}
	return answer, err
}

// follower watches one object as a reflector does: after the end of a watch it
// goes on from the last revision. It must see every number once, in order.
type follower struct {
	load   *load
	client dynamic.ResourceInterface
	name   string

	// revision is used by run only.
	revision string

	mu   sync.Mutex
	seen int64
	ends int
}

func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := f.client.Watch(ctx, metav1.ListOptions{
			ResourceVersion: f.revision, AllowWatchBookmarks: true, FieldSelector: "metadata.name=" + f.name,
		})
		if err != nil {
			if ctx.Err() == nil {
				f.load.failf("watching %s from %s: %v", f.name, f.revision, err)
				pause(ctx)
			}
			continue
		}
		f.read(ctx, stream)
		stream.Stop()
	}
}

func (f *follower) read(ctx context.Context, stream watch.Interface) {
	for event := range stream.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error {
			if ctx.Err() != nil {
				return // the end of the load
			}
			f.load.failf("watching %s from %s: %v", f.name, f.revision, apierrors.FromObject(event.Object))
			return
		}
		f.revision = object.GetResourceVersion()
		if event.Type == watch.Bookmark {
			continue
		}
		got, _, err := unstructured.NestedInt64(object.Object, "spec", "size")
		f.mu.Lock()
		want := f.seen + 1
		f.seen = got
		f.mu.Unlock()
		if err != nil || event.Type != watch.Modified || got != want {
			f.load.failf("watching %s: %s %d (%v), want %d", f.name, event.Type, got, err, want)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil {
		f.ends++
	}
}

// mustHaveSeenAll waits until the watch has shown what is acknowledged by now.
func (f *follower) mustHaveSeenAll(t *testing.T) {
	t.Helper()
	last := f.load.written(f.name)
	ctx, cancel := context.WithTimeout(testContext(t), time.Minute)
	defer cancel()
	err := scenario.Poll(ctx, func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.seen < last {
			return fmt.Errorf("%d of %d writes were seen", f.seen, last)
		}
		return nil
	})
	if err != nil {
		t.Errorf("a watch of %s is silent: %v", f.name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("a watch of %s saw %d writes in order and was ended %d times", f.name, f.seen, f.ends)
}
