// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// sightings is what a client-go informer has seen since it was complete.
type sightings struct {
	// lists is how often it had to begin anew.
	lists int
	// added, deleted and renamed are objects that seemed to be new, gone, or to
	// have another UID; updated counts changes.
	added, updated, deleted, renamed int
}

// observer is a client-go informer of one resource, as every controller has one.
type observer struct {
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
	ended    chan struct{}

	mu   sync.Mutex
	seen sightings
}

// observe starts an informer and waits until it has seen every object.
func (d *demo) observe(ctx context.Context, set *dataset) (*observer, error) {
	o := &observer{ended: make(chan struct{})}
	config := rest.CopyConfig(d.config)
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			answer, err := inner.RoundTrip(request)
			if err == nil && answer.StatusCode == http.StatusOK && isList(request, set.Resource) {
				o.count(func(s *sightings) { s.lists++ })
			}
			return answer, err
		})
	})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	o.informer = dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(set.GroupVersionResource).Informer()
	handler, err := o.informer.AddEventHandler(o)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", set.title(), err)
	}
	// What client-go logs about watches that end is not for the audience.
	ctx, o.stop = context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	go func() {
		defer close(o.ended)
		o.informer.RunWithContext(ctx)
	}()
	// The handler hears of the first list later than the store.
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return nil, errors.Join(fmt.Errorf("watching %s", set.title()), context.Cause(ctx))
	}
	o.count(func(s *sightings) { *s = sightings{} })
	return o, nil
}

// isList recognises both ways in which client-go lists.
func isList(request *http.Request, resource string) bool {
	query := request.URL.Query()
	return path.Base(request.URL.Path) == resource && (query.Get("watch") == "" || query.Get("sendInitialEvents") == "true")
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (o *observer) count(change func(*sightings)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.seen)
}

// sightings returns what was seen until now.
func (o *observer) sightings() sightings {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen
}

// close ends the informer.
func (o *observer) close() {
	o.stop()
	<-o.ended
}

var _ cache.ResourceEventHandler = &observer{}

// OnAdd counts objects that appear after the first list.
func (o *observer) OnAdd(any, bool) {
	o.count(func(s *sightings) { s.added++ })
}

// OnUpdate counts changes.
func (o *observer) OnUpdate(before, after any) {
	same := uidOf(before) == uidOf(after)
	o.count(func(s *sightings) {
		s.updated++
		if !same {
			s.renamed++
		}
	})
}

// OnDelete counts objects that disappear.
func (o *observer) OnDelete(any) {
	o.count(func(s *sightings) { s.deleted++ })
}

func uidOf(object any) types.UID {
	if accessor, ok := object.(metav1.Object); ok {
		return accessor.GetUID()
	}
	return ""
}

// cached returns the informer's copy of an object.
func (o *observer) cached(key string) *unstructured.Unstructured {
	item, found, err := o.informer.GetStore().GetByKey(key)
	if err != nil || !found {
		return nil
	}
	object, _ := item.(*unstructured.Unstructured)
	return object
}
