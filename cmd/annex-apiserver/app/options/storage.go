// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"net/http"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/recognizer"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagefactory "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/kubeannex/annex/pkg/apiserver"
	"github.com/kubeannex/annex/pkg/etcd/revision"
	"github.com/kubeannex/annex/pkg/reads/replicas"
)

// storageFactory sends every resource, compiled in or defined at run time, to
// its own etcd. Upstream's factories know overrides for compiled-in resources only.
type storageFactory struct {
	config    storagebackend.Config
	locations etcdLocations
}

var _ serverstorage.StorageFactory = storageFactory{}

// NewConfig returns the storage of a resource.
func (f storageFactory) NewConfig(resource schema.GroupResource, _ runtime.Object) (*storagebackend.ConfigForResource, error) {
	return f.at(f.locations.of(resource)).ForResource(resource), nil
}

// ResourcePrefix returns the key of a resource below the etcd prefix, as
// upstream's factory for custom resources does.
func (f storageFactory) ResourcePrefix(resource schema.GroupResource) string {
	return resource.Group + "/" + resource.Resource
}

// Configs returns the storage of every location.
func (f storageFactory) Configs() []storagebackend.Config {
	var configs []storagebackend.Config
	for _, transport := range f.locations.transports() {
		configs = append(configs, *f.at(transport))
	}
	return configs
}

// Backends returns the servers of every location.
func (f storageFactory) Backends() []serverstorage.Backend {
	var backends []serverstorage.Backend
	for _, config := range f.Configs() {
		backends = append(backends, serverstorage.Backends(config)...)
	}
	return backends
}

func (f storageFactory) at(transport storagebackend.TransportConfig) *storagebackend.Config {
	config := f.config
	config.Transport = transport
	return &config
}

// ApplyStorage says where each of the three kinds of objects is stored, and
// begins to connect to it: a config comes from Config, and etcd must run.
func (o CompletedOptions) ApplyStorage(config *apiserver.Config) error {
	generic := &config.GenericConfig.Config
	locations, err := o.Etcd.locations(generic)
	if err != nil {
		return err
	}
	etcd := *o.Etcd.Generic
	etcd.StorageConfig.Transport = locations.defaults
	etcd.StorageConfig.StorageObjectCountTracker = generic.StorageObjectCountTracker
	// Their checks are added below, with their own certificates and to readiness only.
	etcd.EtcdServersOverrides = nil
	factory := storageFactory{config: etcd.StorageConfig, locations: locations}
	if err := etcd.ApplyWithStorageFactoryTo(factory, generic); err != nil {
		return fmt.Errorf("configuring storage: %w: correct --encryption-provider-config", err)
	}
	if err := addOverrideChecks(generic, factory.Configs()[1:]); err != nil {
		return fmt.Errorf("configuring etcd health checks: %w", err)
	}
	generic.AddReadyzChecks(revision.NewHealthCheck(o.Etcd.RevisionFloor, etcd.StorageConfig.Prefix, locations.transports()...))

	if !o.Etcd.isEmbedded {
		config.ExtraConfig.Replicas = replicas.New(replicas.Options{
			Transport: locations.defaults, Prefix: etcd.StorageConfig.Prefix,
			Name: config.ExtraConfig.ReplicaName, Source: config.ExtraConfig.Reads,
		})
	}
	config.ExtraConfig.WatchCache = etcd.EnableWatchCache
	config.ExtraConfig.DefinitionRESTOptionsGetter = definitionStorage(etcd, factory, generic)
	config.ExtraConfig.CustomResourceRESTOptionsGetter = customResourceStorage(etcd, factory, generic)
	return nil
}

// definitionStorage stores CustomResourceDefinitions as kube-apiserver does:
// as v1beta1, which is smaller (k8s.io/kubernetes pkg/controlplane/apiserver/apiextensions.go).
func definitionStorage(etcd genericoptions.EtcdOptions, factory storageFactory, config *genericapiserver.Config) generic.RESTOptionsGetter {
	factory.config.Codec = apiextensionsapiserver.Codecs.LegacyCodec(apiextensionsv1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion)
	factory.config.EncodeVersioner = runtime.NewMultiGroupVersioner(apiextensionsv1beta1.SchemeGroupVersion,
		schema.GroupKind{Group: apiextensionsinternal.GroupName})
	return etcd.CreateRESTOptionsGetter(factory, config.ResourceTransformers)
}

// customResourceStorage stores custom resources as kube-apiserver does: as
// JSON, or CBOR when its feature is on, and reads both
// (k8s.io/apiextensions-apiserver pkg/cmd/server/options/options.go, NewCRDRESTOptionsGetter).
func customResourceStorage(etcd genericoptions.EtcdOptions, factory storageFactory, config *genericapiserver.Config) generic.RESTOptionsGetter {
	binary := cbor.NewSerializer(unstructuredscheme.NewUnstructuredCreator(), unstructuredscheme.NewUnstructuredObjectTyper())
	var encoder runtime.Encoder = unstructured.UnstructuredJSONScheme
	if utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
		encoder = binary
	}
	factory.config.Codec = runtime.NewCodec(encoder, recognizer.NewDecoder(binary, unstructured.UnstructuredJSONScheme))
	return etcd.CreateRESTOptionsGetter(factory, config.ResourceTransformers)
}

// addOverrideChecks reports the etcds of overrides under upstream's names, in
// readiness and not in liveness: a restart would not mend them.
func addOverrideChecks(config *genericapiserver.Config, locations []storagebackend.Config) error {
	for i, location := range locations {
		ready, err := storagefactory.CreateReadyCheck(location, config.DrainedNotify())
		if err != nil {
			return err
		}
		name := fmt.Sprintf("etcd-override-readiness-%d", i)
		config.AddReadyzChecks(healthz.NamedGroupedCheck(name, "etcd-readiness", func(*http.Request) error { return ready() }))
	}
	return nil
}
