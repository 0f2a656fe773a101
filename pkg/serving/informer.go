// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// Follow makes the gate obey the AnnexedGroups of an informer, which the caller runs.
func (g *Gate) Follow(informer cache.SharedInformer) error {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    g.observe,
		UpdateFunc: func(_, object any) { g.observe(object) },
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			if group, ok := asGroup(object); ok {
				g.forget(group.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching AnnexedGroups: %w", err)
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	g.hasSynced = registration.HasSynced
	return nil
}

func (g *Gate) observe(object any) {
	group, ok := asGroup(object)
	if !ok {
		return
	}
	mode := group.Status.Serving
	if mode == "" {
		mode = v1alpha1.ServingClosed
	}
	g.set(group.Name, mode)
}

func asGroup(object any) (*v1alpha1.AnnexedGroup, bool) {
	group, ok := object.(*v1alpha1.AnnexedGroup)
	if !ok {
		utilruntime.HandleError(fmt.Errorf("unexpected object in AnnexedGroup event: %T", object))
	}
	return group, ok
}
