// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/reads"
)

// servedResources knows which custom resources are served. It begins to when
// the embedded server is built, which is before the chain of filters is.
type servedResources struct {
	definitions apiextensionslisters.CustomResourceDefinitionLister
}

// installReads keeps account of the reads that reach the handlers of both
// servers. It must be called before the configuration is completed and after
// the gate is installed, so that what the gate refuses is no read.
func (c *Config) installReads() *servedResources {
	served := &servedResources{}
	build := c.GenericConfig.BuildHandlerChainFunc
	c.GenericConfig.BuildHandlerChainFunc = func(apiHandler http.Handler, config *genericapiserver.Config) http.Handler {
		return build(c.ExtraConfig.Reads.Handler(apiHandler, served.has), config)
	}
	return served
}

// follow reads the definitions, and lets the tracker forget what they do not declare any more.
func (s *servedResources) follow(definitions apiextensionsinformers.CustomResourceDefinitionInformer, tracker *reads.Tracker) error {
	s.definitions = definitions.Lister()
	_, err := definitions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if !sameSpec(before, after) {
				s.forget(after, tracker)
			}
		},
		DeleteFunc: func(deleted any) { s.forget(deleted, tracker) },
	})
	if err != nil {
		return fmt.Errorf("following the definitions: %w", err)
	}
	return nil
}

// forget is called some time after a definition has changed or went. Meanwhile there
// may be a new one of its name, so it is the lister that says what is declared.
func (s *servedResources) forget(changed any, tracker *reads.Tracker) {
	// The name is all that a definition leaves whose deletion was not seen.
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(changed)
	if err != nil {
		return
	}
	resource, group, _ := strings.Cut(name, ".")
	tracker.Forget(schema.GroupResource{Group: group, Resource: resource}, s.declares)
}

// sameSpec tells a change of the status and a resync from a change of what is declared.
func sameSpec(before, after any) bool {
	was, ok := before.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return false
	}
	is, ok := after.(*apiextensionsv1.CustomResourceDefinition)
	return ok && was.UID == is.UID && was.Generation == is.Generation
}

// has reports whether a definition serves the resource, with the subresource unless that is empty.
func (s *servedResources) has(resource schema.GroupVersionResource, subresource string) bool {
	return s.anyVersion(resource.GroupResource(), func(version *apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return version.Name == resource.Version && version.Served && hasSubresource(version.Subresources, subresource)
	})
}

// declares is a reads.Declared.
func (s *servedResources) declares(resource schema.GroupVersionResource, subresource string) bool {
	return s.anyVersion(resource.GroupResource(), func(version *apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return (resource.Version == "" || version.Name == resource.Version) && hasSubresource(version.Subresources, subresource)
	})
}

// anyVersion reports whether a definition has a version that matches.
func (s *servedResources) anyVersion(resource schema.GroupResource, matches func(*apiextensionsv1.CustomResourceDefinitionVersion) bool) bool {
	if resource.Group == "" {
		return false
	}
	definition, err := s.definitions.Get(resource.String())
	if err != nil {
		return false
	}
	for i := range definition.Spec.Versions {
		if matches(&definition.Spec.Versions[i]) {
			return true
		}
	}
	return false
}

func hasSubresource(declared *apiextensionsv1.CustomResourceSubresources, subresource string) bool {
	switch {
	case subresource == "":
		return true
	case declared == nil:
		return false
	case subresource == "status":
		return declared.Status != nil
	}
	return subresource == "scale" && declared.Scale != nil
}
