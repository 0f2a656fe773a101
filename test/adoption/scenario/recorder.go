// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Recorder is a client-go informer with default settings that remembers what
// its handlers were told.
type Recorder struct {
	// Traffic are the informer's requests.
	Traffic *Traffic

	gvr    schema.GroupVersionResource
	client dynamic.NamespaceableResourceInterface
	store  cache.Store

	mu sync.Mutex
	// synced is set when the first list was delivered; objects of it are no news.
	synced bool
	counts map[string]int
	// news are the objects that were added or deleted after the first list, and UIDs that changed.
	news []string
}

// Record starts an informer of a resource at the server of config and waits
// until it has synced. It runs until the end of the test.
func (g *Group) Record(tb testing.TB, config *rest.Config, gvr schema.GroupVersionResource) *Recorder {
	tb.Helper()
	observed, traffic := observe(config)
	client, err := dynamic.NewForConfig(observed)
	if err != nil {
		tb.Fatal(err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(gvr).Informer()
	r := &Recorder{
		Traffic: traffic, gvr: gvr, client: g.Client(tb, config, gvr), store: informer.GetStore(), counts: map[string]int{},
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: r.added, UpdateFunc: r.updated, DeleteFunc: r.deleted})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	factory.Start(ctx.Done())
	tb.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	err = Poll(Context(tb), func(context.Context) error {
		if !registration.HasSynced() {
			return errors.New("the informer has not synced")
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("an informer of %s: %v", gvr, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = true
	return r
}

func (r *Recorder) added(object any) { r.note("ADDED", object, true) }

func (r *Recorder) updated(before, after any) {
	older, ok := before.(*unstructured.Unstructured)
	newer, alsoOK := after.(*unstructured.Unstructured)
	changed := ok && alsoOK && older.GetUID() != newer.GetUID()
	r.note("MODIFIED", after, false)
	if changed {
		r.note("UID changed", after, true)
	}
}

func (r *Recorder) deleted(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	r.note("DELETED", object, true)
}

func (r *Recorder) note(what string, object any, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.synced {
		return
	}
	r.counts[what]++
	if item, ok := object.(*unstructured.Unstructured); ok && news {
		r.news = append(r.news, what+" "+objectKey(r.gvr, item.GetNamespace(), item.GetName()))
	}
}

// Summary tells the numbers of events since the first list and of lists since then.
func (r *Recorder) Summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.counts[what], what))
	}
	return fmt.Sprintf("informer of %s %s: %s, %d lists after the first, %d answers 429",
		r.gvr.Resource, r.gvr.Version, strings.Join(parts, ", "), r.Traffic.Lists()-1, r.Traffic.Code(429))
}

// News returns what happened to objects that nobody created, deleted or
// replaced: nothing may. Objects of writers and markers are left out.
func (r *Recorder) News() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.news), func(line string) bool {
		return strings.HasPrefix(line[strings.LastIndex(line, "/")+1:], WriterPrefix)
	})
}

// MustBeQuietAndAlive fails the test when a survivor was added, deleted or got
// another UID, when the informer does not see a new write soon, and when its
// store is not what the server of config lists then. Writers must be at rest.
func (r *Recorder) MustBeQuietAndAlive(tb testing.TB) {
	tb.Helper()
	r.mustSeeMarker(tb)
	if news := r.News(); len(news) > 0 {
		tb.Errorf("%s told %d times of objects that did not change, the first: %s", r.Summary(), len(news), news[0])
	}
	err := Poll(Context(tb), func(ctx context.Context) error {
		list, err := r.client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		want, got := map[string]string{}, map[string]string{}
		for _, item := range list.Items {
			want[item.GetNamespace()+"/"+item.GetName()] = string(item.GetUID()) + "@" + item.GetResourceVersion()
		}
		for _, object := range r.store.List() {
			item := object.(*unstructured.Unstructured)
			got[item.GetNamespace()+"/"+item.GetName()] = string(item.GetUID()) + "@" + item.GetResourceVersion()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("server (-) and informer (+) differ:\n%s", diff[:min(len(diff), 2000)])
		}
		return nil
	})
	if err != nil {
		tb.Errorf("%s: %v", r.Summary(), err)
	}
}

// mustSeeMarker writes an object and waits until the informer has it.
func (r *Recorder) mustSeeMarker(tb testing.TB) {
	tb.Helper()
	name := Mark(tb, r.client, r.gvr)
	ctx, cancel := context.WithTimeout(Context(tb), markerTimeout)
	defer cancel()
	err := Poll(ctx, func(context.Context) error {
		for _, object := range r.store.List() {
			if object.(*unstructured.Unstructured).GetName() == name {
				return nil
			}
		}
		return errors.New("the informer has no " + name)
	})
	if err != nil {
		tb.Errorf("%s is silent: %v", r.Summary(), err)
	}
}

// markerTimeout is how long a client may take to see a new write after its
// connection was ended: client-go waits up to 30 s between attempts that failed.
const markerTimeout = 40 * time.Second

// Mark creates an object that every living client must see, and returns its name.
func Mark(tb testing.TB, client dynamic.NamespaceableResourceInterface, gvr schema.GroupVersionResource) string {
	tb.Helper()
	kind := map[string]string{"gadgets": "Gadget", "planets": "Planet", "morphs": "Morph"}[gvr.Resource]
	marker := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": kind}}
	marker.SetName(fmt.Sprintf("%smarker-%d", WriterPrefix, time.Now().UnixNano()))
	var target dynamic.ResourceInterface = client
	if kind != "Planet" {
		marker.SetNamespace(metav1.NamespaceDefault)
		target = client.Namespace(metav1.NamespaceDefault)
	}
	err := Poll(Context(tb), func(ctx context.Context) error {
		_, err := target.Create(ctx, marker, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		tb.Fatalf("creating a marker of %s: %v", gvr, err)
	}
	return marker.GetName()
}
