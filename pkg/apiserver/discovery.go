// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
)

// discoverySyncPeriod is how often start-up looks whether the first list of definitions has been published.
const discoverySyncPeriod = 50 * time.Millisecond

// installDiscovery serves /apis for the groups of both servers.
//
// The aggregated document needs nothing: both servers write into the same
// manager. The plain list, which older clients read, is kept by the server
// that is asked; the embedded one never publishes there, so its groups are
// added here.
func installDiscovery(front *genericapiserver.GenericAPIServer, customResources *apiextensionsapiserver.CustomResourceDefinitions) error {
	handler := aggregated.WrapAggregatedDiscoveryToHandler(front.DiscoveryGroupManager, front.AggregatedDiscoveryGroupManager, nil)
	front.Handler.GoRestfulContainer.Add(handler.GenerateWebService("/apis", metav1.APIGroupList{}))

	definitionsVersion := metav1.GroupVersionForDiscovery{
		GroupVersion: apiextensionsv1.SchemeGroupVersion.String(),
		Version:      apiextensionsv1.SchemeGroupVersion.Version,
	}
	front.DiscoveryGroupManager.AddGroup(metav1.APIGroup{
		Name:             apiextensions.GroupName,
		Versions:         []metav1.GroupVersionForDiscovery{definitionsVersion},
		PreferredVersion: definitionsVersion,
	})

	informer := customResources.Informers.Apiextensions().V1().CustomResourceDefinitions()
	groups := customGroups{lister: informer.Lister(), manager: front.DiscoveryGroupManager}
	registration, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    groups.sync,
		UpdateFunc: func(_, definition any) { groups.sync(definition) },
		DeleteFunc: groups.sync,
	})
	if err != nil {
		return fmt.Errorf("watching definitions: %w", err)
	}
	return front.AddPostStartHook("custom-group-discovery", func(hook genericapiserver.PostStartHookContext) error {
		// A hook that fails ends the process at once; one that the stop of the server cuts short must not.
		synced := func(context.Context) (bool, error) { return registration.HasSynced(), nil }
		if err := wait.PollUntilContextCancel(hook, discoverySyncPeriod, true, synced); err != nil && hook.Err() == nil {
			return err
		}
		return nil
	})
}

// customGroups keeps the groups of established definitions in the plain /apis list.
type customGroups struct {
	lister  apiextensionslisters.CustomResourceDefinitionLister
	manager discovery.GroupManager
}

// sync publishes or withdraws the group of the definition in an informer
// event. Events arrive one after the other and after the lister has changed,
// so the last one leaves the list right.
func (g customGroups) sync(event any) {
	if tombstone, ok := event.(cache.DeletedFinalStateUnknown); ok {
		event = tombstone.Obj
	}
	definition, ok := event.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		utilruntime.HandleError(fmt.Errorf("unexpected object in definition event: %T", event))
		return
	}
	definitions, err := g.lister.List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("listing definitions: %w", err))
		return
	}
	if group, served := discoveryGroup(definition.Spec.Group, definitions); served {
		g.manager.AddGroup(group)
	} else {
		g.manager.RemoveGroup(definition.Spec.Group)
	}
}

// discoveryGroup is the discovery entry of a group, and whether any version
// of it is served. Versions are ordered as upstream's discovery controller
// orders them (apiextensions-apiserver pkg/apiserver/customresource_discovery_controller.go).
func discoveryGroup(name string, definitions []*apiextensionsv1.CustomResourceDefinition) (metav1.APIGroup, bool) {
	var versions []metav1.GroupVersionForDiscovery
	for _, definition := range definitions {
		if definition.Spec.Group != name || !apiextensionshelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
			continue
		}
		for _, v := range definition.Spec.Versions {
			entry := metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v.Name, Version: v.Name}
			if v.Served && !slices.Contains(versions, entry) {
				versions = append(versions, entry)
			}
		}
	}
	if len(versions) == 0 {
		return metav1.APIGroup{}, false
	}
	slices.SortFunc(versions, func(a, b metav1.GroupVersionForDiscovery) int {
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	return metav1.APIGroup{Name: name, Versions: versions, PreferredVersion: versions[0]}, true
}
