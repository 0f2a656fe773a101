// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/apiserver/importing"
	annexedgroupstorage "github.com/kubeannex/annex/pkg/registry/kubeannex/annexedgroup/storage"
	"github.com/kubeannex/annex/pkg/registry/kubeannex/listprofile"
	"github.com/kubeannex/annex/pkg/registry/kubeannex/listreview"
)

// Server is an annex API server: the kubeannex.io group in front and the
// embedded server for custom resources behind it.
type Server struct {
	// GenericAPIServer is the server in front. Requests enter here.
	GenericAPIServer *genericapiserver.GenericAPIServer
	// CustomResources is the embedded server behind it.
	CustomResources *apiextensionsapiserver.CustomResourceDefinitions
	// CustomResourcesConfig is what CustomResources was built from. It is only read.
	CustomResourcesConfig apiextensionsapiserver.CompletedConfig

	openAPI openAPIConfig
}

// New builds the server. Storage is dialled here: etcd must be ready.
func (c CompletedConfig) New() (*Server, error) {
	// The embedded server is the last of the chain: a path that it does not know is answered with 404.
	notFound := notfoundhandler.New(c.genericConfig.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	customResourcesConfig := c.customResource.Complete()
	customResources, err := customResourcesConfig.New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, fmt.Errorf("building the server for custom resources: %w", err)
	}
	if err := c.served.follow(customResources.Informers.Apiextensions().V1().CustomResourceDefinitions(), c.extraConfig.Reads); err != nil {
		return nil, err
	}
	front, err := c.genericConfig.New("annex-apiserver", customResources.GenericAPIServer)
	if err != nil {
		return nil, fmt.Errorf("building the server for %s: %w", kubeannex.GroupName, err)
	}
	if err := installDiscovery(front, customResources); err != nil {
		return nil, fmt.Errorf("installing discovery: %w", err)
	}
	if err := c.installAPIGroup(front, customResources); err != nil {
		return nil, fmt.Errorf("installing the API group %s: %w", kubeannex.GroupName, err)
	}
	if err := c.followGroups(front, customResources.Informers.Apiextensions().V1().CustomResourceDefinitions()); err != nil {
		return nil, fmt.Errorf("following the AnnexedGroups: %w", err)
	}
	return &Server{
		GenericAPIServer:      front,
		CustomResources:       customResources,
		CustomResourcesConfig: customResourcesConfig,
		openAPI:               openAPIConfig{v2: c.genericConfig.OpenAPIConfig, v3: c.genericConfig.OpenAPIV3Config},
	}, nil
}

func (c CompletedConfig) installAPIGroup(server *genericapiserver.GenericAPIServer, customResources *apiextensionsapiserver.CustomResourceDefinitions) error {
	storage, err := annexedgroupstorage.NewStorage(Scheme, c.genericConfig.RESTOptionsGetter)
	if err != nil {
		return err
	}
	probe, err := newCacheProbe(server.LoopbackClientConfig, c.extraConfig.StorageMetrics)
	if err != nil {
		return err
	}
	stores := importing.NewStores(c.extraConfig.uncached())
	server.RegisterDestroyFunc(stores.Close)
	data := groupData{
		definitions: customResources.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister(),
		stores:      stores,
		gate:        c.gate,
		probe:       probe.probe,
		disabled:    c.extraConfig.HostAPIs.Disabled,
	}
	explainer, err := c.newExplainer(server, data.definitions)
	if err != nil {
		return err
	}
	profiles, err := c.installProfiles(server)
	if err != nil {
		return err
	}
	subresources := annexedgroupstorage.NewSubresources(storage.AnnexedGroup, data, c.extraConfig.ControllerUser)
	group := genericapiserver.NewDefaultAPIGroupInfo(kubeannex.GroupName, Scheme, metav1.ParameterCodec, Codecs)
	group.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"annexedgroups":         storage.AnnexedGroup,
		"annexedgroups/status":  storage.Status,
		"annexedgroups/import":  subresources.Import,
		"annexedgroups/digest":  subresources.Digest,
		"annexedgroups/replica": subresources.Replica,
		"listreviews":           listreview.NewREST(explainer),
		"listprofiles":          listprofile.NewREST(profiles),
	}
	return server.InstallAPIGroup(&group)
}

// hookTimeout is how long a stop waits for the start of the embedded server to be over.
const hookTimeout = 10 * time.Second

// Run serves until ctx is done and all requests in flight are answered.
func (s *Server) Run(ctx context.Context) error {
	prepared := s.GenericAPIServer.PrepareRun()
	if err := s.publishOpenAPI(); err != nil {
		return fmt.Errorf("publishing OpenAPI: %w", err)
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := s.letClientsLeave(runCtx); err != nil {
		return err
	}
	go func() {
		select {
		case <-ctx.Done():
			s.waitForHooks()
			cancel()
		case <-runCtx.Done():
		}
	}()
	return prepared.RunWithContext(runCtx)
}

// waitForHooks returns when the embedded server knows the definitions. A hook
// of upstream that is interrupted before ends the process at once
// (k8s.io/apiserver pkg/server/hooks.go), and with it an embedded etcd.
func (s *Server) waitForHooks() {
	timeout := time.After(hookTimeout)
	for _, complete := range s.GenericAPIServer.MuxAndDiscoveryCompleteSignals() {
		select {
		case <-complete:
		case <-timeout:
			return
		}
	}
}
