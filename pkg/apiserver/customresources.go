// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"slices"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubeannex/annex/pkg/serving/compactlist"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// customResourceConfig configures the embedded server that serves
// CustomResourceDefinitions and the resources they define.
type customResourceConfig struct {
	*apiextensionsapiserver.Config
}

// newCustomResourceConfig derives the configuration of the embedded server
// from the one in front of it. Both share one filter chain, one admission
// chain and one aggregated discovery document, as in kube-apiserver
// (k8s.io/kubernetes cmd/kube-apiserver/app/server.go, CreateServerChain).
func newCustomResourceConfig(c *Config, indexes annexed.IndexSource, catalog *annexed.Catalog) customResourceConfig {
	generic := *c.GenericConfig
	// The server in front owns the hooks; a second registration of the same name is refused.
	generic.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	// Both servers append to these; with a shared array one would overwrite a check of the other.
	generic.HealthzChecks = slices.Clone(generic.HealthzChecks)
	generic.LivezChecks = slices.Clone(generic.LivezChecks)
	generic.ReadyzChecks = slices.Clone(generic.ReadyzChecks)
	generic.RESTOptionsGetter = c.annexed(c.ExtraConfig.DefinitionRESTOptionsGetter, nil, nil)
	generic.MergedResourceConfig = apiextensionsapiserver.DefaultAPIResourceConfigSource()
	// The embedded server encodes its own types.
	generic.Serializer = apiextensionsapiserver.Codecs
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(apiextensionsopenapi.GetOpenAPIDefinitions)
	namer := openapinamer.NewDefinitionNamer(apiextensionsapiserver.Scheme, scheme.Scheme)
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	generic.OpenAPIConfig.Info.Title = openAPITitle
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	generic.OpenAPIV3Config.Info.Title = openAPITitle

	return customResourceConfig{&apiextensionsapiserver.Config{
		GenericConfig: &generic,
		ExtraConfig: apiextensionsapiserver.ExtraConfig{
			CRDRESTOptionsGetter: c.annexed(c.ExtraConfig.CustomResourceRESTOptionsGetter, indexes, catalog),
			MasterCount:          c.ExtraConfig.ReplicaCount,
			ServiceResolver:      c.ExtraConfig.ServiceResolver,
			AuthResolverWrapper:  c.ExtraConfig.AuthResolverWrapper,
		},
	}}
}

// installCompactLists lets lists be answered with the bytes that compact caches have. It must be called
// before the configuration is completed, and after what is to see those answers.
func (c *Config) installCompactLists() {
	build := c.GenericConfig.BuildHandlerChainFunc
	c.GenericConfig.BuildHandlerChainFunc = func(apiHandler http.Handler, config *genericapiserver.Config) http.Handler {
		return build(compactlist.Handler(apiHandler), config)
	}
}
