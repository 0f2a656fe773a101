// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"strings"

	"github.com/emicklei/go-restful/v3"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	generatedopenapi "github.com/kubeannex/annex/pkg/generated/openapi"
)

const openAPITitle = "Annex"

// openAPIConfig describes the types of the server in front.
type openAPIConfig struct {
	v2 *common.Config
	v3 *common.OpenAPIV3Config
}

func newOpenAPIConfig() openAPIConfig {
	namer := openapinamer.NewDefinitionNamer(Scheme, apiextensionsapiserver.Scheme)
	c := openAPIConfig{
		v2: genericapiserver.DefaultOpenAPIConfig(generatedopenapi.GetOpenAPIDefinitions, namer),
		v3: genericapiserver.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions, namer),
	}
	c.v2.Info.Title = openAPITitle
	c.v3.Info.Title = openAPITitle
	return c
}

// publishOpenAPI adds the server in front to the documents of the embedded
// one, which serves /openapi/v2 and /openapi/v3 and keeps them current as
// definitions change. It must run after PrepareRun, which creates those
// documents, and before the hooks start, which read StaticOpenAPISpec.
func (s *Server) publishOpenAPI() error {
	services := s.GenericAPIServer.Handler.GoRestfulContainer.RegisteredWebServices()
	embedded := s.CustomResources.GenericAPIServer
	v2, err := buildOpenAPIV2(services, s.openAPI.v2, embedded.StaticOpenAPISpec)
	if err != nil {
		return err
	}
	embedded.StaticOpenAPISpec = v2
	if err := embedded.OpenAPIVersionedService.UpdateSpec(v2); err != nil {
		return fmt.Errorf("updating the OpenAPI v2 document: %w", err)
	}
	for _, service := range services {
		v3, err := builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices([]*restful.WebService{service}), s.openAPI.v3)
		if err != nil {
			return fmt.Errorf("building the OpenAPI v3 document of %s: %w", service.RootPath(), err)
		}
		embedded.OpenAPIV3VersionedService.UpdateGroupVersion(strings.TrimPrefix(service.RootPath(), "/"), v3)
	}
	return nil
}

func buildOpenAPIV2(services []*restful.WebService, config *common.Config, embedded *spec.Swagger) (*spec.Swagger, error) {
	merged, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(services), config)
	if err != nil {
		return nil, fmt.Errorf("building the OpenAPI v2 document: %w", err)
	}
	merged.Definitions = handler.PruneDefaults(merged.Definitions)
	if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(merged, embedded); err != nil {
		return nil, fmt.Errorf("merging the OpenAPI v2 documents: %w", err)
	}
	return merged, nil
}
