// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	apiextensionsapi "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/explain"
	"github.com/kubeannex/annex/pkg/serving"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// newExplainer explains the lists of the server and, behind a cluster, of that. It sends
// them past the filters to what the filters stand before; only a list that is run passes them.
// From then on the server notes where requests for reviews come from.
func (c CompletedConfig) newExplainer(server *genericapiserver.GenericAPIServer, definitions apiextensionslisters.CustomResourceDefinitionLister) (*explain.Explainer, error) {
	config := explain.Config{
		Handler:    server.Handler.Director,
		Server:     behindFilters(c.genericConfig.Config, explain.LimitAnalyses(server.Handler.Director)),
		Authorizer: c.genericConfig.Authorization.Authorizer,
		Definition: describer(definitions, c.indexes),
		Seats:      seatEstimator(c.genericConfig.FlowControl, c.genericConfig.StorageObjectCountTracker, c.catalog),
	}
	if c.gate != nil {
		config.Handler = c.gate.Handler(config.Handler, Codecs, kubeannex.GroupName, apiextensionsapi.GroupName)
	}
	if c.host != nil {
		client, err := discovery.NewDiscoveryClientForConfig(c.host)
		if err != nil {
			return nil, fmt.Errorf("creating a client of the cluster's discovery: %w", err)
		}
		config.Host = explain.NewHost(client, clock.RealClock{})
		config.KeptHere = keptHere(definitions, c.gate)
	}
	server.Handler.FullHandlerChain = explain.WithOrigin(server.Handler.FullHandlerChain)
	return explain.New(config), nil
}

// behindFilters puts a second chain of the server's filters, with the same gate, fairness, audit
// and account of reads, before its handlers. It believes the user that is in the context of a request
// already, so nothing but this process may send requests to it. In a server without fairness the chain has
// its own count of requests in flight: explain.LimitAnalyses bounds how many that adds.
func behindFilters(server *genericapiserver.Config, handlers http.Handler) http.Handler {
	config := *server
	config.Authentication = genericapiserver.AuthenticationInfo{
		Authenticator: authenticator.RequestFunc(func(request *http.Request) (*authenticator.Response, bool, error) {
			requester, ok := genericapirequest.UserFrom(request.Context())
			return &authenticator.Response{User: requester}, ok, nil
		}),
	}
	if config.FlowControl != nil {
		config.FlowControl = impatient{config.FlowControl}
	}
	return config.BuildHandlerChainFunc(handlers, &config)
}

// analysisPatience is how long a list that is run for a review waits for its seats. The
// review holds a seat of the same level of priority meanwhile: where reviews hold all of them, no list ever gets one.
const analysisPatience = 2 * time.Second

// impatient is fairness whose requests do not wait for longer than analysisPatience. It answers them
// with 429 and Retry-After then, as when its queues are full.
type impatient struct{ utilflowcontrol.Interface }

var _ utilflowcontrol.Interface = impatient{}

// Handle implements utilflowcontrol.Interface. The context ends the wait alone: what was let
// in has its own (k8s.io/apiserver pkg/server/filters/priority-and-fairness.go).
func (f impatient) Handle(ctx context.Context, digest utilflowcontrol.RequestDigest,
	note func(*flowcontrol.FlowSchema, *flowcontrol.PriorityLevelConfiguration, string),
	estimate func() flowcontrolrequest.WorkEstimate, queued fairqueuing.QueueNoteFn, execute func(),
) {
	ctx, cancel := context.WithTimeout(ctx, analysisPatience)
	defer cancel()
	f.Interface.Handle(ctx, digest, note, estimate, queued, execute)
}

// describer reads definitions. Of other resources than those it knows nothing.
func describer(definitions apiextensionslisters.CustomResourceDefinitionLister, indexes *declaredIndexes) func(schema.GroupVersionResource) explain.Definition {
	return func(resource schema.GroupVersionResource) explain.Definition {
		definition, err := definitions.Get(resource.GroupResource().String())
		if err != nil {
			return explain.Definition{}
		}
		fields, declared := indexes.of(resource)
		return explain.Definition{
			Namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
			Fields:     fields,
			Indexes:    declared,
		}
	}
}

// of returns the selectable fields and the declared indexes of one version of a resource.
func (d *declaredIndexes) of(resource schema.GroupVersionResource) (fields []string, declared annexed.Indexes) {
	d.lock.Lock()
	defer d.lock.Unlock()
	fields = d.selectableFieldsLocked(resource.GroupResource(), resource.Version)
	return fields, d.indexesLocked(&indexFollower{resource: resource.GroupResource(), fields: fields})
}

// keptHere reports whether requests of the cluster for a resource end here: it is
// defined and the gate lets lists of its group pass. The core group and definitions
// never do. Of other groups nothing is known before the gate has synced: then they
// end here, where the gate answers 503.
func keptHere(definitions apiextensionslisters.CustomResourceDefinitionLister, gate *serving.Gate) func(schema.GroupResource) bool {
	return func(resource schema.GroupResource) bool {
		switch {
		case resource.Group == kubeannex.GroupName:
			return true
		case resource.Group == "" || resource.Group == apiextensionsapi.GroupName:
			return false
		case gate != nil && !gate.HasSynced():
			return true
		}
		if _, err := definitions.Get(resource.String()); err != nil {
			return false
		}
		return gate == nil || slices.Contains([]v1alpha1.ServingMode{"", v1alpha1.ServingOpen, v1alpha1.ServingReadOnly}, gate.Serving(resource.Group))
	}
}
