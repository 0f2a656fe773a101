// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostapis

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// recheck is how long the cluster is believed to lack what it lacked. The informer adds
// its own delay between two lists.
const recheck = 30 * time.Second

// Install makes the informers that the factory gives to plug-ins bear the lack of
// their API. It must be called before anybody else asks the factory for them. The
// informers of plug-ins that are not named are not made.
func (a *Availability) Install(factory informers.SharedInformerFactory, plugins ...string) {
	for _, kind := range kinds() {
		if !slices.Contains(plugins, kind.plugin) {
			continue
		}
		factory.InformerFor(kind.object, newInformer(a, kind, recheck))
	}
}

// newInformer returns what makes an informer of a kind.
func newInformer(availability *Availability, kind kind, recheck time.Duration) func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
	return func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		source := &source{kind: kind, client: client, availability: availability, recheck: recheck}
		return cache.NewSharedIndexInformerWithOptions(source.listWatch(), kind.object, cache.SharedIndexInformerOptions{
			ResyncPeriod: resync,
			Indexers:     cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		})
	}
}

// source lists and watches one kind in the first version that the cluster serves.
type source struct {
	kind
	client       kubernetes.Interface
	availability *Availability
	recheck      time.Duration
	// current is the version that the last list was read in, nil when the cluster served none.
	current atomic.Pointer[version]
}

// listOnly is a ListWatch that has its informer list before it watches: a watch with
// initial events would have to find out about missing versions too.
type listOnly struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how an informer is told so (k8s.io/client-go util/watchlist).
func (listOnly) IsWatchListSemanticsUnSupported() bool { return true }

func (s *source) listWatch() cache.ListerWatcher {
	return listOnly{&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}}
}

// list returns an empty list where the cluster serves no version, and an error where that is not certain.
func (s *source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	for i := range s.versions {
		version := &s.versions[i]
		list, err := version.list(ctx, s.client, options)
		if err == nil {
			s.use(ctx, version)
			return list, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		// A proxy before the cluster may answer 404 too.
		served, asked := s.served(ctx, version.resource)
		if asked != nil {
			return nil, asked
		}
		if served {
			return nil, err
		}
	}
	s.use(ctx, nil)
	return s.newList(), nil
}

// use notes what the cluster serves. The first version is what it should.
func (s *source) use(ctx context.Context, version *version) {
	logger, newest := klog.FromContext(ctx), &s.versions[0]
	if before := s.current.Swap(version); version != nil && version != before && version != newest {
		logger.Info("The cluster serves an older version of an API only: reading that", "plugin", s.plugin, "resource", version.resource.String())
	}
	s.availability.set(logger, s.plugin, newest.resource, version != nil)
}

// served asks discovery. An error says that the cluster did not answer as a cluster does.
func (s *source) served(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	client := s.client.Discovery().RESTClient()
	groups := &metav1.APIGroupList{}
	if err := client.Get().AbsPath("/apis").Do(ctx).Into(groups); err != nil {
		return false, err
	}
	if len(groups.Groups) == 0 {
		return false, errors.New("the cluster names no API groups")
	}
	for _, group := range groups.Groups {
		if group.Name != resource.Group {
			continue
		}
		if !slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == resource.Version }) {
			return false, nil
		}
		resources := &metav1.APIResourceList{}
		if err := client.Get().AbsPath("/apis", resource.Group, resource.Version).Do(ctx).Into(resources); err != nil {
			return false, err
		}
		return slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource }), nil
	}
	return false, nil
}

// watch follows the version of the last list. Where there was none it has the informer list again in a while.
func (s *source) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if version := s.current.Load(); version != nil {
		return version.watch(ctx, s.client, options)
	}
	return expire(ctx, s.recheck), nil
}

// expire returns a watch without events that is too old after a time, which makes an informer list.
func expire(ctx context.Context, after time.Duration) watch.Interface {
	ctx, cancel := context.WithCancel(ctx)
	w := &expiring{events: make(chan watch.Event, 1), cancel: cancel}
	go func() {
		defer close(w.events)
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
			status := apierrors.NewResourceExpired("it is time to look for the API again").Status()
			w.events <- watch.Event{Type: watch.Error, Object: &status}
		}
	}()
	return w
}

var _ watch.Interface = &expiring{}

type expiring struct {
	events chan watch.Event
	cancel context.CancelFunc
}

// ResultChan implements watch.Interface.
func (w *expiring) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *expiring) Stop() { w.cancel() }
