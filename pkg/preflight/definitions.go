// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

// Definitions returns the CustomResourceDefinitions of a group, by plural name.
func Definitions(ctx context.Context, client apiextensionsclient.Interface, group string) ([]apiextensionsv1.CustomResourceDefinition, error) {
	list, err := client.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing CustomResourceDefinitions: %w", err)
	}
	definitions := slices.DeleteFunc(list.Items, func(d apiextensionsv1.CustomResourceDefinition) bool {
		return d.Spec.Group != group
	})
	slices.SortFunc(definitions, func(a, b apiextensionsv1.CustomResourceDefinition) int {
		return cmp.Compare(a.Spec.Names.Plural, b.Spec.Names.Plural)
	})
	return definitions, nil
}

func (c *collector) lookAtDefinitions(ctx context.Context) error {
	definitions, err := Definitions(ctx, c.clients.Definitions, c.group)
	if err != nil {
		return err
	}
	c.definitions = definitions
	if !c.checkDefined() {
		return nil
	}
	c.checkIndexes()
	for i := range definitions {
		c.addDefinition(&definitions[i])
	}
	return nil
}

func (c *collector) checkDefined() bool {
	if len(c.definitions) == 0 {
		c.addf(SeverityRefusal, CheckDefinitions, "the cluster has no CustomResourceDefinition of group %q: check its name with \"kubectl get customresourcedefinitions\"", c.group)
	}
	return len(c.definitions) > 0
}

// checkIndexes holds the spec against the definitions, which annex-apiserver
// does not know when an AnnexedGroup is created.
func (c *collector) checkIndexes() {
	for _, resource := range c.options.Spec.Resources {
		i := slices.IndexFunc(c.definitions, func(d apiextensionsv1.CustomResourceDefinition) bool {
			return d.Spec.Names.Plural == resource.Resource
		})
		if i < 0 {
			c.addf(SeverityRefusal, CheckIndexes, "group %q has no resource %q to index: it has %s", c.group, resource.Resource, pluralsOf(c.definitions))
			continue
		}
		if index := resource.WatchIndex; index != nil && index.Field != "" && !selectable(&c.definitions[i], index.Field) {
			c.addf(SeverityRefusal, CheckIndexes, "watchIndex field %q is not selectable: add it to selectableFields of CustomResourceDefinition %s", index.Field, c.definitions[i].Name)
		}
	}
}

func pluralsOf(definitions []apiextensionsv1.CustomResourceDefinition) string {
	var names []string
	for i := range definitions {
		names = append(names, definitions[i].Spec.Names.Plural)
	}
	return strings.Join(names, ", ")
}

func selectable(definition *apiextensionsv1.CustomResourceDefinition, field string) bool {
	if field == "metadata.name" || field == "metadata.namespace" {
		return true
	}
	for _, version := range definition.Spec.Versions {
		for _, selectable := range version.SelectableFields {
			if strings.TrimPrefix(selectable.JSONPath, ".") == field {
				return true
			}
		}
	}
	return false
}

func (c *collector) addDefinition(definition *apiextensionsv1.CustomResourceDefinition) {
	resource := Resource{
		Name:           definition.Spec.Names.Plural,
		Kind:           definition.Spec.Names.Kind,
		Scope:          string(definition.Spec.Scope),
		ServedVersions: []string{},
		StoredVersions: definition.Status.StoredVersions,
		Conversion:     string(apiextensionsv1.NoneConverter),
	}
	for _, version := range definition.Spec.Versions {
		if version.Served {
			resource.ServedVersions = append(resource.ServedVersions, version.Name)
		}
		if version.Storage {
			resource.StorageVersion = version.Name
		}
	}
	if conversion := definition.Spec.Conversion; conversion != nil {
		resource.Conversion = string(conversion.Strategy)
	}
	c.report.Resources = append(c.report.Resources, resource)
	c.managed = append(c.managed, managedObject{"CustomResourceDefinition", definition})
	c.checkDefinition(definition, &resource)
}

// mayBeCreated says whether a new definition of the group may have these
// annotations. A reason why the group is not approved will do.
func mayBeCreated(definition *apiextensionsv1.CustomResourceDefinition) bool {
	if !apihelpers.IsProtectedCommunityGroup(definition.Spec.Group) {
		return true
	}
	state, _ := apihelpers.GetAPIApprovalState(definition.Annotations)
	return state == apihelpers.APIApproved || state == apihelpers.APIApprovalBypassed
}

// checkDefinition refuses what annex could not create a copy of: old definitions
// keep settings that the rules for new ones exclude
// (k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation).
func (c *collector) checkDefinition(definition *apiextensionsv1.CustomResourceDefinition, resource *Resource) {
	refuse := func(format string, args ...any) {
		c.addf(SeverityRefusal, CheckDefinitions, "CustomResourceDefinition "+definition.Name+" "+format, args...)
	}
	is := func(condition apiextensionsv1.CustomResourceDefinitionConditionType) bool {
		return apihelpers.IsCRDConditionTrue(definition, condition)
	}
	switch {
	case definition.DeletionTimestamp != nil:
		refuse("is being deleted: wait until it is gone, or remove what holds it")
	case !is(apiextensionsv1.Established):
		refuse("is not established: see its conditions with \"kubectl describe customresourcedefinition %s\"", definition.Name)
	case !slices.Contains(resource.ServedVersions, resource.StorageVersion):
		refuse("does not serve its storage version %s, so its objects cannot be copied: set served on that version", resource.StorageVersion)
	}
	if is(apiextensionsv1.NonStructuralSchema) {
		refuse("has a schema that is not structural, which no new definition may have: correct the schema")
	}
	if definition.Spec.PreserveUnknownFields {
		refuse("sets spec.preserveUnknownFields, which no new definition may: set it to false and use x-kubernetes-preserve-unknown-fields in the schema")
	}
	if !mayBeCreated(definition) {
		refuse("lacks the annotation %s, which a new definition of a protected group needs: set it", apiextensionsv1.KubeAPIApprovedAnnotation)
	}
	if slices.ContainsFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == kubeannexv1alpha1.PrivateVersion
	}) {
		refuse("already has a version %s, which annex uses for itself: remove it", kubeannexv1alpha1.PrivateVersion)
	}
	if len(resource.StoredVersions) > 1 {
		c.addf(SeverityInfo, CheckDefinitions, "%s: etcd may hold objects in versions %s; annex stores all of them as %s",
			resource.Name, strings.Join(resource.StoredVersions, ", "), resource.StorageVersion)
	}
}

// Groups returns the groups that the cluster has CustomResourceDefinitions of, sorted.
func Groups(ctx context.Context, client apiextensionsclient.Interface) ([]string, error) {
	list, err := client.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing CustomResourceDefinitions: %w", err)
	}
	groups := sets.New[string]()
	for i := range list.Items {
		groups.Insert(list.Items[i].Spec.Group)
	}
	return sets.List(groups), nil
}
