// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/admission/hostapis"
	"github.com/kubeannex/annex/pkg/reads"
	"github.com/kubeannex/annex/pkg/reads/replicas"
	"github.com/kubeannex/annex/pkg/serving"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// ExtraConfig is what Annex needs beyond the generic API server configuration.
type ExtraConfig struct {
	// DefinitionRESTOptionsGetter says where CustomResourceDefinitions are stored.
	DefinitionRESTOptionsGetter generic.RESTOptionsGetter
	// CustomResourceRESTOptionsGetter says where custom resources are stored.
	CustomResourceRESTOptionsGetter generic.RESTOptionsGetter
	// WatchCache puts a watch cache before etcd. Without it every read goes to etcd.
	WatchCache bool
	// CompactCache lets the watch caches of custom resources keep their JSON.
	CompactCache bool
	// Gated says that requests for adopted groups pass the serving gate.
	Gated bool
	// Trust returns nil once the server knows whose certificates prove who a client is.
	// Until then requests are refused. A nil Trust means that it knows at once.
	Trust func() error
	// ControllerUser is the name of the one user who may import objects.
	ControllerUser string
	// ServingMetrics counts what the gate refuses. Who wants to see them registers it.
	ServingMetrics *serving.Metrics
	// StorageMetrics counts the requests that reach etcd. Who wants to see them registers it.
	StorageMetrics *annexed.Metrics
	// HostAPIs knows what the cluster does not serve. Who wants to see its metric registers it.
	HostAPIs *hostapis.Availability
	// Reads keeps account of who reads what. Who wants to see its metrics registers them.
	Reads *reads.Tracker
	// ReplicaName is what this process is known by among several, the name of its host.
	ReplicaName string
	// Replicas tells who reads what from the other processes over the same etcd. It is nil
	// in a server that has one of its own. The server runs it.
	Replicas *replicas.Exchange
	// ServiceResolver finds the address of a conversion webhook that is named by a Service.
	ServiceResolver webhook.ServiceResolver
	// AuthResolverWrapper adds credentials to conversion webhook clients.
	AuthResolverWrapper webhook.AuthenticationInfoResolverWrapper
	// ReplicaCount is the number of annex-apiserver processes over the same etcd. Above one, a new
	// definition is reported Established only after the other replicas had time to see it.
	ReplicaCount int
}

// Config is the configuration of an annex API server.
type Config struct {
	// GenericConfig carries the filter chain, the serving options and the storage of the kubeannex.io group.
	GenericConfig *genericapiserver.RecommendedConfig
	// ExtraConfig is the part that is particular to Annex.
	ExtraConfig ExtraConfig
}

// NewConfig returns a configuration with default values, to which options are applied.
func NewConfig() *Config {
	generic := genericapiserver.NewRecommendedConfig(Codecs)
	openAPI := newOpenAPIConfig()
	generic.OpenAPIConfig = openAPI.v2
	generic.OpenAPIV3Config = openAPI.v3
	// Both servers publish their groups in this one document, see discovery.go.
	generic.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	return &Config{
		GenericConfig: generic,
		ExtraConfig: ExtraConfig{
			WatchCache:     true,
			Gated:          true,
			StorageMetrics: annexed.NewMetrics(),
			ServingMetrics: serving.NewMetrics(),
			HostAPIs:       hostapis.NewAvailability(),
			Reads:          reads.NewTracker(reads.DefaultRows),
			ReplicaCount:   1,
		},
	}
}

type completedConfig struct {
	genericConfig  genericapiserver.CompletedConfig
	customResource customResourceConfig
	extraConfig    *ExtraConfig
	// gate is nil in a server without one.
	gate    *serving.Gate
	indexes *declaredIndexes
	catalog *annexed.Catalog
	served  *servedResources
	// host reaches the cluster. It is nil in a server that runs alone.
	host *rest.Config
}

// CompletedConfig can only be had from Config.Complete.
type CompletedConfig struct {
	*completedConfig
}

// Complete fills in what can be derived and changes the receiver.
//
// The GenericConfig must have all options applied: the embedded server for
// custom resources works on a copy of it that is taken here.
func (c *Config) Complete() CompletedConfig {
	c.GenericConfig.RESTOptionsGetter = c.annexed(c.GenericConfig.RESTOptionsGetter, nil, nil)
	indexes, catalog := newDeclaredIndexes(), annexed.NewCatalog()
	customResource := newCustomResourceConfig(c, indexes, catalog)
	c.installFairness(catalog, indexes)
	// The definitions of both servers are published in one document, see openapi.go.
	c.GenericConfig.SkipOpenAPIInstallation = true
	// /apis lists the groups of both servers, see discovery.go.
	c.GenericConfig.EnableDiscovery = false
	var gate *serving.Gate
	if c.ExtraConfig.Gated {
		gate = c.installGate()
	}
	served := c.installReads(indexes)
	if c.ExtraConfig.CompactCache {
		c.installCompactLists()
	}
	c.installTrust()
	c.noteLoopback()
	return CompletedConfig{&completedConfig{
		genericConfig:  c.GenericConfig.Complete(),
		customResource: customResource,
		extraConfig:    &c.ExtraConfig,
		gate:           gate,
		indexes:        indexes,
		catalog:        catalog,
		served:         served,
		host:           c.GenericConfig.ClientConfig,
	}}
}

// annexed puts the storage layer of Annex into every store built from the
// given getter. Beside uncached it is the only place where that layer enters. Nil
// indexes are none; a nil catalog is told of nothing.
func (c *Config) annexed(getter generic.RESTOptionsGetter, indexes annexed.IndexSource, catalog *annexed.Catalog) generic.RESTOptionsGetter {
	return annexed.NewRESTOptionsGetter(getter, annexed.Config{
		WatchCache: c.ExtraConfig.WatchCache,
		// Objects of our own group have types.
		Compact: c.ExtraConfig.CompactCache && indexes != nil,
		Metrics: c.ExtraConfig.StorageMetrics,
		Indexes: indexes,
		Catalog: catalog,
		Ended:   c.forgetIndexes(indexes),
		// Only custom resources have indexes, and versions that nobody may use.
		Lazy: indexes != nil,
	})
}

// uncached is annexed without a watch cache, for custom resources as they are stored.
func (c *ExtraConfig) uncached() generic.RESTOptionsGetter {
	return annexed.NewRESTOptionsGetter(c.CustomResourceRESTOptionsGetter, annexed.Config{Metrics: c.StorageMetrics})
}
