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

// follow reads the definitions, and lets the tracker forget those that are deleted.
func (s *servedResources) follow(definitions apiextensionsinformers.CustomResourceDefinitionInformer, tracker *reads.Tracker) error {
	s.definitions = definitions.Lister()
	_, err := definitions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(deleted any) {
		// The name is all that a definition leaves whose deletion was not seen.
		name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(deleted)
		if err != nil {
			return
		}
		resource, group, _ := strings.Cut(name, ".")
		tracker.Forget(schema.GroupResource{Group: group, Resource: resource})
	}})
	if err != nil {
		return fmt.Errorf("following the definitions: %w", err)
	}
	return nil
}

// has reports whether a definition serves the resource, with the subresource unless that is empty.
func (s *servedResources) has(resource schema.GroupVersionResource, subresource string) bool {
	if resource.Group == "" {
		return false
	}
	definition, err := s.definitions.Get(resource.Resource + "." + resource.Group)
	if err != nil {
		return false
	}
	for i := range definition.Spec.Versions {
		if version := &definition.Spec.Versions[i]; version.Name == resource.Version {
			return version.Served && hasSubresource(version.Subresources, subresource)
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
