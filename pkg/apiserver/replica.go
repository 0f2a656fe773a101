// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"sync"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/gone"
	"github.com/kubeannex/annex/pkg/storage/annexed"
)

// Replica implements annexedgroupstorage.Data. To answer whether caches are
// filled it asks them, which starts that of the stored version.
func (d groupData) Replica(ctx context.Context, group *kubeannex.AnnexedGroup) (v1alpha1.ReplicaStatus, error) {
	status := v1alpha1.ReplicaStatus{Serving: v1alpha1.ServingOpen}
	if d.gate != nil {
		status.Serving = d.gate.Serving(group.Name)
	}
	for _, disabled := range d.disabled() {
		status.DisabledPlugins = append(status.DisabledPlugins, disabled.Plugin)
	}
	definitions, err := d.definitionsOf(group.Name)
	if err != nil {
		return v1alpha1.ReplicaStatus{}, err
	}
	var resources []schema.GroupResource
	probeCtx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	status.Resources = make([]v1alpha1.ReplicaResource, len(definitions))
	var probes sync.WaitGroup
	for i, definition := range definitions {
		resources = append(resources, schema.GroupResource{Group: group.Name, Resource: definition.Spec.Names.Plural})
		probes.Go(func() { status.Resources[i] = d.resource(probeCtx, definition) })
	}
	probes.Wait()
	if len(resources) == 0 {
		// The resources that will come, as long as no override names them.
		resources = []schema.GroupResource{{Group: group.Name, Resource: "resources"}}
	}
	space, err := d.stores.Space(ctx, resources...)
	if err != nil {
		return v1alpha1.ReplicaStatus{}, err
	}
	status.Revision, status.DatabaseBytes, status.QuotaBytes = space.Revision, space.DatabaseBytes, space.QuotaBytes
	return status, nil
}

func (d groupData) resource(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition) v1alpha1.ReplicaResource {
	resource := v1alpha1.ReplicaResource{
		Resource:             definition.Spec.Names.Plural,
		DefinitionGeneration: definition.Generation,
		Established:          apiextensionshelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established),
	}
	resource.Ready = resource.Established && d.probe(ctx, definition) == nil
	return resource
}

// probePatience is how long the question waits for caches. They are filled on afterwards, and
// who asks, asks again.
const probePatience = 2 * time.Second

// probeName is the name of an object that is not expected to exist.
const probeName = "annex-replica-probe"

// cacheProbe asks the server itself whether a resource is answered.
type cacheProbe struct {
	client rest.Interface
	// caches tells which versions have a cache.
	caches *annexed.Metrics
}

func newCacheProbe(config *rest.Config, caches *annexed.Metrics) (*cacheProbe, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.GroupVersion = &schema.GroupVersion{}
	config.QPS = -1
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the server itself: %w", err)
	}
	return &cacheProbe{client: client, caches: caches}, nil
}

// probe asks every served version. The cache of the stored one is filled for that, as
// are those that are in use: an adoption waits for them before clients come. Of another
// version, which may have no clients, one object is read from etcd. That proves that
// it can be converted, and starts no cache.
func (p *cacheProbe) probe(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition) error {
	inUse, rest := p.split(definition)
	object := ""
	for _, version := range inUse {
		var err error
		if object, err = p.fromCache(ctx, definition, version); err != nil {
			return err
		}
	}
	if object == "" {
		return nil // there is none
	}
	for _, version := range rest {
		err := p.client.Get().AbsPath("apis", version.Group, version.Version, object).MaxRetries(0).Do(ctx).Error()
		if err != nil && !gone.Object(err, path.Base(object)) {
			return err
		}
	}
	return nil
}

// split parts the served versions into the stored one, or the first where that is not
// served, with those that have a cache, and the rest.
func (p *cacheProbe) split(definition *apiextensionsv1.CustomResourceDefinition) (inUse, rest []schema.GroupVersionResource) {
	known := p.caches.Caches()
	stored := -1
	var served []schema.GroupVersionResource
	for _, version := range definition.Spec.Versions {
		if version.Storage && version.Served || version.Served && stored < 0 {
			stored = len(served)
		}
		if version.Served {
			served = append(served, schema.GroupVersionResource{Group: definition.Spec.Group, Version: version.Name, Resource: definition.Spec.Names.Plural})
		}
	}
	for i, version := range served {
		if i == stored || known[version].Caches > 0 {
			inUse = append(inUse, version)
		} else {
			rest = append(rest, version)
		}
	}
	return inUse, rest
}

// fromCache asks for one object by name, from the cache, with the server's own
// client. Unlike a list with a limit, such a list is refused while the cache is
// not filled (k8s.io/apiserver pkg/storage/cacher/delegator.go,
// shouldDelegateListOnNotReadyCache), and it costs the same for any number of
// objects. Then it asks for the newest state of any one object: a cache that was
// filled when there were none says for a moment that it is ready although what
// came since cannot be converted. It returns the path of that object below the version.
func (p *cacheProbe) fromCache(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition, resource schema.GroupVersionResource) (string, error) {
	within := []string{"apis", resource.Group, resource.Version}
	if definition.Spec.Scope == apiextensionsv1.NamespaceScoped {
		within = append(within, "namespaces", "default")
	}
	err := p.client.Get().AbsPath(append(within, resource.Resource)...).
		Param("fieldSelector", "metadata.name="+probeName).
		Param("resourceVersion", "0").
		MaxRetries(0).
		Do(ctx).Error()
	if err != nil {
		return "", err
	}
	body, err := p.client.Get().AbsPath("apis", resource.Group, resource.Version, resource.Resource).
		Param("limit", "1").
		MaxRetries(0).
		Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return "", fmt.Errorf("reading the server's own answer: %w", err)
	}
	if len(list.Items) == 0 {
		return "", nil
	}
	object := list.Items[0]
	if object.Namespace == "" {
		return resource.Resource + "/" + object.Name, nil
	}
	return "namespaces/" + object.Namespace + "/" + resource.Resource + "/" + object.Name, nil
}
