// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	apiextensionsapi "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
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
			chain = serving.WithFrontProxy(chain, proxy.UsernameHeaders)
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

// followGroups makes the gate obey the AnnexedGroups as soon as the server can be asked for them.
// definitions is the informer of the embedded server, which runs it.
func followGroups(server *genericapiserver.GenericAPIServer, gate *serving.Gate, definitions cache.SharedIndexInformer) error {
	client, err := versioned.NewForConfig(rest.CopyConfig(server.LoopbackClientConfig))
	if err != nil {
		return fmt.Errorf("creating a client of the server itself: %w", err)
	}
	informer := informers.NewAnnexedGroupInformer(client, 0, cache.Indexers{})
	if err := gate.Follow(informer, definitions); err != nil {
		return err
	}
	return server.AddPostStartHook(gateCheckName, func(hook genericapiserver.PostStartHookContext) error {
		go informer.RunWithContext(hook)
		return nil
	})
}
