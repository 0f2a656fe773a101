// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// Replica implements annexedgroupstorage.Data. To answer whether caches are
// filled it asks them, which builds them where they are not.
func (d groupData) Replica(ctx context.Context, group *kubeannex.AnnexedGroup) (v1alpha1.ReplicaStatus, error) {
	status := v1alpha1.ReplicaStatus{Serving: v1alpha1.ServingOpen}
	if d.gate != nil {
		status.Serving = d.gate.Serving(group.Name)
	}
	definitions, err := d.definitionsOf(group.Name)
	if err != nil {
		return v1alpha1.ReplicaStatus{}, err
	}
	var resources []schema.GroupResource
	for _, definition := range definitions {
		resources = append(resources, schema.GroupResource{Group: group.Name, Resource: definition.Spec.Names.Plural})
		status.Resources = append(status.Resources, d.resource(ctx, definition))
	}
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
	resource.Ready = resource.Established
	for _, version := range definition.Spec.Versions {
		if version.Served && resource.Ready {
			resource.Ready = d.probe(ctx, definition, version.Name) == nil
		}
	}
	return resource
}

// probeName is the name of an object that is not expected to exist.
const probeName = "annex-replica-probe"

// newCacheProbe asks for one object by name, from the cache, with the server's own
// client. Unlike a list with a limit, such a list is refused while the cache is
// not filled (k8s.io/apiserver pkg/storage/cacher/delegator.go,
// shouldDelegateListOnNotReadyCache), and it costs the same for any number of
// objects. Then it asks for the newest state of any one object: a cache that was
// filled when there were none says for a moment that it is ready although what
// came since cannot be converted.
func newCacheProbe(config *rest.Config) (func(context.Context, *apiextensionsv1.CustomResourceDefinition, string) error, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.GroupVersion = &schema.GroupVersion{}
	config.QPS = -1
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the server itself: %w", err)
	}
	return func(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition, version string) error {
		path := []string{"apis", definition.Spec.Group, version}
		if definition.Spec.Scope == apiextensionsv1.NamespaceScoped {
			path = append(path, "namespaces", "default")
		}
		err := client.Get().AbsPath(append(path, definition.Spec.Names.Plural)...).
			Param("fieldSelector", "metadata.name="+probeName).
			Param("resourceVersion", "0").
			MaxRetries(0).
			Do(ctx).Error()
		if err != nil {
			return err
		}
		return client.Get().AbsPath("apis", definition.Spec.Group, version, definition.Spec.Names.Plural).
			Param("limit", "1").
			MaxRetries(0).
			Do(ctx).Error()
	}, nil
}
