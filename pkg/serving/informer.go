// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// definitionsByGroup is the index of the definitions that the gate asks.
const definitionsByGroup = "annex-gate-group"

// Follow makes the gate obey the AnnexedGroups of one informer and know the
// CustomResourceDefinitions of the other. The caller runs them, not before this.
func (g *Gate) Follow(groups cache.SharedInformer, definitions cache.SharedIndexInformer) error {
	if err := definitions.AddIndexers(cache.Indexers{definitionsByGroup: groupOfDefinition}); err != nil {
		return fmt.Errorf("indexing definitions: %w", err)
	}
	indexer := definitions.GetIndexer()
	registration, err := groups.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
	g.hasSynced = func() bool { return registration.HasSynced() && definitions.HasSynced() }
	g.hasDefinition = func(name string) bool {
		keys, err := indexer.IndexKeys(definitionsByGroup, name)
		return err == nil && len(keys) > 0
	}
	return nil
}

// groupOfDefinition is a cache.IndexFunc. It has no errors: the cache panics of one.
func groupOfDefinition(object any) ([]string, error) {
	if definition, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
		return []string{definition.Spec.Group}, nil
	}
	return nil, nil
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
