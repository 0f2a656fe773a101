// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/reads"
	"github.com/kubeannex/annex/pkg/registry/kubeannex/listprofile"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// servedResources knows which custom resources are served. It begins to when
// the embedded server is built, which is before the chain of filters is.
type servedResources struct {
	definitions apiextensionslisters.CustomResourceDefinitionLister
}

// installReads keeps account of the reads that reach the handlers of both
// servers. It must be called before the configuration is completed and after
// the gate is installed, so that what the gate refuses is no read.
func (c *Config) installReads(indexes *declaredIndexes) *servedResources {
	served := &servedResources{}
	build := c.GenericConfig.BuildHandlerChainFunc
	c.GenericConfig.BuildHandlerChainFunc = func(apiHandler http.Handler, config *genericapiserver.Config) http.Handler {
		return build(c.ExtraConfig.Reads.Handler(apiHandler, served.has, c.indexed(indexes)), config)
	}
	return served
}

// indexed is a reads.Indexed: an index is there as long as it is declared, or a cache has it.
func (c *Config) indexed(indexes *declaredIndexes) reads.Indexed {
	return func(resource schema.GroupResource, index string) bool {
		return indexes.has(resource, index) || c.ExtraConfig.StorageMetrics.Indexed(resource, index)
	}
}

// forgetIndexes returns what is to be called when a cache has ended: it takes the series
// of indexes that are there no more. It is nil for resources without declared ones.
func (c *Config) forgetIndexes(source annexed.IndexSource) func(schema.GroupResource) {
	indexes, ok := source.(*declaredIndexes)
	if !ok {
		return nil
	}
	return func(resource schema.GroupResource) {
		c.ExtraConfig.Reads.ForgetIndexes(resource, c.indexed(indexes))
	}
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

// ownProfiles are the profiles of a server that has no others beside it.
type ownProfiles struct {
	reads *reads.Tracker
	name  string
}

// Profiles implements listprofile.Source.
func (p ownProfiles) Profiles(context.Context) (list *kubeannex.ListProfileList, warning string) {
	list = p.reads.Profiles()
	list.Replica, list.Replicas = p.name, []string{p.name}
	return list, ""
}

// profilesHookName is listed in /readyz, as that of every hook is.
const profilesHookName = "annex-read-profiles"

// stopPatience is how long a stop waits for the process to take leave of the others.
const stopPatience = 2 * time.Second

// installProfiles returns the profiles of all processes over the same etcd. While the
// server runs, this one tells the others its own.
func (c completedConfig) installProfiles(server *genericapiserver.GenericAPIServer) (listprofile.Source, error) {
	exchange := c.extraConfig.Replicas
	if exchange == nil {
		return ownProfiles{reads: c.extraConfig.Reads, name: c.extraConfig.ReplicaName}, nil
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	err := server.AddPostStartHook(profilesHookName, func(hook genericapiserver.PostStartHookContext) error {
		ctx, cancel := context.WithCancel(hook.Context)
		go func() {
			defer close(stopped)
			exchange.Run(ctx)
		}()
		go func() {
			defer cancel()
			select {
			case <-stop:
			case <-ctx.Done():
			}
		}()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("telling other replicas who reads what: %w", err)
	}
	leave := sync.OnceFunc(func() { close(stop) })
	err = server.AddPreShutdownHook(profilesHookName, func() error {
		leave()
		select {
		case <-stopped:
		case <-time.After(stopPatience):
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("telling other replicas who reads what: %w", err)
	}
	return exchange, nil
}
