// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflighttest makes clients of a cluster that is only imagined, for
// tests of what looks at a group before it is adopted.
package preflighttest

import (
	"fmt"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/preflight"
)

// Group is the group of the imagined cluster.
const Group = "example.com"

// Cluster is what the cluster has. A test changes it before Clients is called.
type Cluster struct {
	Definitions []*apiextensionsv1.CustomResourceDefinition
	APIServices []*apiregistrationv1.APIService
	// Webhooks are configurations of either type.
	Webhooks []runtime.Object
	// Objects are objects of Group.
	Objects []*unstructured.Unstructured
	// Others are the objects of other groups, Discovery tells of their resources.
	Others    []*metav1.PartialObjectMetadata
	Discovery []*metav1.APIResourceList
}

// Fakes are the clients, for tests that add reactors or read actions.
type Fakes struct {
	Kube        *kubefake.Clientset
	Definitions *apiextensionsfake.Clientset
	APIServices *aggregatorfake.Clientset
	Dynamic     *dynamicfake.FakeDynamicClient
	Metadata    *metadatafake.FakeMetadataClient
}

// NewCluster has widgets (v1alpha1 and v1, three objects) and racks (v1, cluster
// scoped, none) that nothing speaks against adopting.
func NewCluster() *Cluster {
	return &Cluster{
		Definitions: []*apiextensionsv1.CustomResourceDefinition{
			Definition("widgets", "Widget", apiextensionsv1.NamespaceScoped, "v1", "v1alpha1"),
			Definition("racks", "Rack", apiextensionsv1.ClusterScoped, "v1"),
		},
		APIServices: []*apiregistrationv1.APIService{
			APIService(Group, "v1", ""), APIService(Group, "v1alpha1", ""),
			APIService("kubeannex.io", "v1alpha1", "annex-system/annex"), APIService("", "v1", ""),
		},
		Objects: []*unstructured.Unstructured{Widget("one"), Widget("two"), Widget("three")},
	}
}

// Definition returns an established definition of Group. The first version is the stored one.
func Definition(plural, kind string, scope apiextensionsv1.ResourceScope, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: Group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			StoredVersions: versions[:1],
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
				{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
			},
		},
	}
	for i, version := range versions {
		definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version, Served: true, Storage: i == 0})
	}
	return definition
}

// APIService returns an available version. Without a service it is one that
// kube-apiserver keeps by itself.
func APIService(group, version, service string) *apiregistrationv1.APIService {
	object := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group},
		Spec:       apiregistrationv1.APIServiceSpec{Group: group, Version: version},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{
			{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue},
		}},
	}
	if service == "" {
		object.Labels = map[string]string{"kube-aggregator.kubernetes.io/automanaged": "true"}
		return object
	}
	namespace, name, _ := strings.Cut(service, "/")
	object.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name}
	return object
}

// Widget returns an object of Group in namespace default.
func Widget(name string) *unstructured.Unstructured {
	widget := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}}}
	widget.SetGroupVersionKind(schema.GroupVersionKind{Group: Group, Version: "v1", Kind: "Widget"})
	widget.SetNamespace("default")
	widget.SetName(name)
	return widget
}

// Webhook returns a validating webhook of a service that is called for the resources of a group.
func Webhook(name, group, policy string, resources ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:          "check." + name,
			FailurePolicy: ptr.To(admissionregistrationv1.FailurePolicyType(policy)),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: "hooks", Name: name},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources},
			}},
		}},
	}
}

// Clients returns clients of the cluster as it is now.
func (c *Cluster) Clients() (preflight.Clients, *Fakes, error) {
	kinds := map[schema.GroupVersionResource]string{}
	var definitions, services []runtime.Object
	for _, d := range c.Definitions {
		definitions = append(definitions, d)
		for _, version := range d.Spec.Versions {
			kinds[schema.GroupVersionResource{Group: d.Spec.Group, Version: version.Name, Resource: d.Spec.Names.Plural}] = d.Spec.Names.ListKind
		}
	}
	for _, service := range c.APIServices {
		services = append(services, service)
	}
	var objects []runtime.Object
	for _, object := range c.Objects {
		objects = append(objects, object)
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return preflight.Clients{}, nil, fmt.Errorf("making the metadata client: %w", err)
	}
	var others []runtime.Object
	for _, other := range c.Others {
		others = append(others, other)
	}
	fakes := &Fakes{
		Kube:        kubefake.NewClientset(c.Webhooks...),
		Definitions: apiextensionsfake.NewClientset(definitions...),
		APIServices: aggregatorfake.NewClientset(services...),
		Dynamic:     dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...),
		Metadata:    metadatafake.NewSimpleMetadataClient(scheme, others...),
	}
	fakes.Kube.Resources = c.Discovery
	return preflight.Clients{
		Kube: fakes.Kube, Definitions: fakes.Definitions, APIServices: fakes.APIServices,
		Dynamic: fakes.Dynamic, Metadata: fakes.Metadata,
	}, fakes, nil
}

// List returns a page of widgets that says how many more there are.
func List(items, remaining int64) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": Group + "/v1", "kind": "WidgetList"}}
	for i := range items {
		list.Items = append(list.Items, *Widget(strconv.FormatInt(i, 10)))
	}
	list.SetContinue("more")
	list.SetRemainingItemCount(&remaining)
	return list
}
