// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
)

// discoveryAge is how long the answers of a cluster's discovery are believed. Clusters are
// upgraded, and definitions changed, without a word.
const discoveryAge = time.Minute

// discoveredHost asks a cluster's discovery. It keeps the group versions that were asked
// for one by one: client-go's memory cache would read them all for the first question after
// each of its ends, and let others wait meanwhile.
type discoveredHost struct {
	client discovery.DiscoveryInterfaceWithContext
	clock  clock.PassiveClock

	lock    sync.Mutex
	version aged[*version.Info]
	// groupVersions has those alone that exist.
	groupVersions map[schema.GroupVersion]aged[*metav1.APIResourceList]
}

// aged is an answer and when it was given.
type aged[T any] struct {
	answer T
	at     time.Time
}

var _ Host = &discoveredHost{}

// NewHost returns the cluster that a discovery client asks. Its answers are up to a minute
// old.
func NewHost(client discovery.DiscoveryInterfaceWithContext, passiveClock clock.PassiveClock) Host {
	return &discoveredHost{client: client, clock: passiveClock, groupVersions: map[schema.GroupVersion]aged[*metav1.APIResourceList]{}}
}

// Version implements Host.
func (h *discoveredHost) Version(ctx context.Context) (*version.Info, error) {
	h.lock.Lock()
	known := h.version
	h.lock.Unlock()
	if known.answer != nil && h.clock.Since(known.at) < discoveryAge {
		return known.answer, nil
	}
	info, err := h.client.ServerVersionWithContext(ctx)
	if err != nil {
		return nil, err
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	h.version = aged[*version.Info]{info, h.clock.Now()}
	return info, nil
}

// Resource implements Host. A resource that is not known is asked for at once: it may be new.
func (h *discoveredHost) Resource(ctx context.Context, resource schema.GroupVersionResource) (metav1.APIResource, error) {
	if found, ok := find(h.known(resource.GroupVersion()), resource.Resource); ok {
		return listable(found, resource.GroupResource())
	}
	list, err := h.client.ServerResourcesForGroupVersionWithContext(ctx, resource.GroupVersion().String())
	if err != nil {
		return metav1.APIResource{}, err
	}
	h.learn(resource.GroupVersion(), list)
	found, ok := find(list, resource.Resource)
	if !ok {
		return metav1.APIResource{}, apierrors.NewGenericServerResponse(http.StatusNotFound, http.MethodGet, schema.GroupResource{}, "", "404 page not found", 0, true)
	}
	return listable(found, resource.GroupResource())
}

// known returns nil for a group version that was not asked for lately.
func (h *discoveredHost) known(groupVersion schema.GroupVersion) *metav1.APIResourceList {
	h.lock.Lock()
	defer h.lock.Unlock()
	known, ok := h.groupVersions[groupVersion]
	if !ok || h.clock.Since(known.at) >= discoveryAge {
		return nil
	}
	return known.answer
}

// learn notes an answer and forgets those that are too old.
func (h *discoveredHost) learn(groupVersion schema.GroupVersion, list *metav1.APIResourceList) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for other, known := range h.groupVersions {
		if h.clock.Since(known.at) >= discoveryAge {
			delete(h.groupVersions, other)
		}
	}
	h.groupVersions[groupVersion] = aged[*metav1.APIResourceList]{list, h.clock.Now()}
}

func find(list *metav1.APIResourceList, name string) (metav1.APIResource, bool) {
	if list == nil {
		return metav1.APIResource{}, false
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
	if i < 0 {
		return metav1.APIResource{}, false
	}
	return list.APIResources[i], true
}

func listable(found metav1.APIResource, resource schema.GroupResource) (metav1.APIResource, error) {
	if !slices.Contains(found.Verbs, verbList) {
		return metav1.APIResource{}, apierrors.NewMethodNotSupported(resource, verbList)
	}
	return found, nil
}
