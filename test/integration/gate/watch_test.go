// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// TestRunningWatchGetsALastEvent looks at the stream itself.
func TestRunningWatchGetsALastEvent(t *testing.T) {
	tests := map[string]struct {
		accept string
		mode   v1alpha1.ServingMode
	}{
		"objects, released":  {"application/json", v1alpha1.ServingReleased},
		"objects, closed":    {"application/json", v1alpha1.ServingClosed},
		"tables, released":   {"application/json;as=Table;v=v1;g=meta.k8s.io", v1alpha1.ServingReleased},
		"metadata, released": {"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", v1alpha1.ServingReleased},
	}
	world := startSeeded(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			world.ServeNow(t, v1alpha1.ServingOpen)
			events := startWatch(t, world, tc.accept)
			for range seeded {
				if event := <-events; event.Type != string(watch.Added) {
					t.Fatalf("got %s, want ADDED", event.Type)
				}
			}
			world.ServeNow(t, tc.mode)
			event, more := <-events
			if !more {
				t.Fatal("the stream ended without a last event")
			}
			var status metav1.Status
			if err := json.Unmarshal(event.Object.Raw, &status); err != nil {
				t.Fatal(err)
			}
			if event.Type != string(watch.Error) || status.Reason != metav1.StatusReasonExpired || status.Code != http.StatusGone {
				t.Errorf("last event: got %s %s", event.Type, event.Object.Raw)
			}
			if event, more := <-events; more {
				t.Errorf("after the last event: got %s", event.Type)
			}
		})
	}
}

// startWatch sends the events of a watch from the beginning to a channel that is closed at its end.
func startWatch(t *testing.T, world *adopted.World, accept string) <-chan metav1.WatchEvent {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, world.URL(collection+"?watch=1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := world.HTTP(t, adopted.Somebody).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("code %d", response.StatusCode)
	}
	events := make(chan metav1.WatchEvent, 100)
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	group.Go(func() {
		defer close(events)
		defer response.Body.Close()
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			var event metav1.WatchEvent
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				t.Errorf("%v: %s", err, lines.Bytes())
				return
			}
			events <- event
		}
	})
	return events
}

// TestOldRevisionOfAReleasedGroup is what a client does that missed the last event.
func TestOldRevisionOfAReleasedGroup(t *testing.T) {
	world := startSeeded(t)
	world.ServeNow(t, v1alpha1.ServingReleased)
	_, err := world.Dynamic(t, adopted.Somebody).Resource(env.GadgetResource("v1")).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, want Expired", err)
	}
}

// countingTransport counts the lists of a client, also those that come as a watch.
type countingTransport struct {
	inner http.RoundTripper
	lists *atomic.Int64
}

func (c countingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.inner.RoundTrip(request)
	query := request.URL.Query()
	if err == nil && response.StatusCode == http.StatusOK && (query.Get("watch") == "" || query.Get("sendInitialEvents") == "true") {
		c.lists.Add(1)
	}
	return response, err
}

// TestInformerListsAgain runs client-go's own informer through a release.
func TestInformerListsAgain(t *testing.T) {
	world := startSeeded(t)
	world.ServeNow(t, v1alpha1.ServingOpen)
	var lists, deletes atomic.Int64
	config := rest.CopyConfig(world.Config(t, adopted.Somebody))
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return countingTransport{inner, &lists} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, env.GadgetResource("v1"), metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	var lock sync.Mutex
	seen := map[string]string{}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			lock.Lock()
			defer lock.Unlock()
			added := object.(*unstructured.Unstructured)
			seen[added.GetName()] = string(added.GetUID())
		},
		DeleteFunc: func(any) { deletes.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { informer.RunWithContext(ctx) })
	defer group.Wait()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	before := lists.Load()
	world.ServeNow(t, v1alpha1.ServingReleased)
	world.ServeNow(t, v1alpha1.ServingOpen)
	await(t, "another list", func() bool { return lists.Load() > before })
	created, err := client.Resource(env.GadgetResource("v1")).Namespace("t").Create(t.Context(), env.Gadget("t", "new", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"g0": "uid-0", "g1": "uid-1", "g2": "uid-2", "new": string(created.GetUID())}
	await(t, "the event of a new object", func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(seen) == len(want)
	})
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("objects that were seen (-want +got):\n%s", diff)
	}
	if n := deletes.Load(); n != 0 {
		t.Errorf("the informer saw %d deletions", n)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, settled, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
