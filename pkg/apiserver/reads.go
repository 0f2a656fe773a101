// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// servedResources knows which custom resources are served. Its lister is set when
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

// has reports whether a definition serves the resource.
func (s *servedResources) has(resource schema.GroupVersionResource) bool {
	if resource.Group == "" {
		return false
	}
	definition, err := s.definitions.Get(resource.Resource + "." + resource.Group)
	if err != nil {
		return false
	}
	for i := range definition.Spec.Versions {
		if version := &definition.Spec.Versions[i]; version.Name == resource.Version {
			return version.Served
		}
	}
	return false
}
