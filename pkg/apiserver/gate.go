// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	apiextensionsapi "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	informers "github.com/kubeannex/annex/pkg/generated/informers/externalversions/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/serving"
)

// gateCheckName is the name of the gate in /readyz.
const gateCheckName = "serving-gate"

// installGate puts a gate between the filters and both servers, which share one
// chain of filters. It must be called before the configuration is completed.
func (c *Config) installGate() *serving.Gate {
	gate := serving.NewGate(c.ExtraConfig.ServingMetrics)
	build := c.GenericConfig.BuildHandlerChainFunc
	c.GenericConfig.BuildHandlerChainFunc = func(apiHandler http.Handler, config *genericapiserver.Config) http.Handler {
		chain := build(gate.Handler(apiHandler, Codecs, kubeannex.GroupName, apiextensionsapi.GroupName), config)
		if proxy := config.Authentication.RequestHeaderConfig; proxy != nil {
			chain = serving.WithFrontProxy(serving.WithOneAuditID(chain), proxy.UsernameHeaders)
		}
		return chain
	}
	c.GenericConfig.AddReadyzChecks(healthz.NamedCheck(gateCheckName, func(*http.Request) error {
		if !gate.HasSynced() {
			return errors.New("the AnnexedGroups and definitions were not read yet")
		}
		return nil
	}))
	return gate
}

// trustCheckName is the name of what is waited for before anybody is authenticated, in /readyz.
const trustCheckName = "authentication-settings"

// installTrust refuses requests until the server knows whom to trust. It must be
// called before the configuration is completed and after the gate is installed.
func (c *Config) installTrust() {
	trust := c.ExtraConfig.Trust
	if trust == nil {
		return
	}
	build := c.GenericConfig.BuildHandlerChainFunc
	c.GenericConfig.BuildHandlerChainFunc = func(apiHandler http.Handler, config *genericapiserver.Config) http.Handler {
		return serving.WithTrust(build(apiHandler, config), trust, Codecs)
	}
	c.GenericConfig.AddReadyzChecks(healthz.NamedCheck(trustCheckName, func(*http.Request) error { return trust() }))
}

// noteLoopback tells the gate, the account of reads and WithTrust which requests
// are the server's own. It must be called after those are installed.
func (c *Config) noteLoopback() {
	build := c.GenericConfig.BuildHandlerChainFunc
	c.GenericConfig.BuildHandlerChainFunc = func(apiHandler http.Handler, config *genericapiserver.Config) http.Handler {
		chain := build(apiHandler, config)
		if config.LoopbackClientConfig == nil {
			return chain
		}
		return serving.WithLoopback(chain, config.LoopbackClientConfig.BearerToken)
	}
}

// groupsHookName is the name of the start of the informer of AnnexedGroups in /readyz.
const groupsHookName = "annexed-groups"

// followGroups makes the gate, if there is one, and the indexes obey the
// AnnexedGroups as soon as the server can be asked for them. The embedded server
// runs the informer of definitions.
func (c CompletedConfig) followGroups(server *genericapiserver.GenericAPIServer, definitions apiextensionsinformers.CustomResourceDefinitionInformer) error {
	client, err := versioned.NewForConfig(rest.CopyConfig(server.LoopbackClientConfig))
	if err != nil {
		return fmt.Errorf("creating a client of the server itself: %w", err)
	}
	informer := informers.NewAnnexedGroupInformer(client, 0, cache.Indexers{})
	if c.gate != nil {
		if err := c.gate.Follow(informer, definitions.Informer()); err != nil {
			return fmt.Errorf("installing the serving gate: %w", err)
		}
	}
	if err := c.indexes.follow(informer, definitions.Lister()); err != nil {
		return fmt.Errorf("installing the indexes: %w", err)
	}
	return server.AddPostStartHook(groupsHookName, func(hook genericapiserver.PostStartHookContext) error {
		go informer.RunWithContext(hook)
		return nil
	})
}
