// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostcopy brings the copies that the cluster keeps of adopted objects
// to what annex has, through the private version of their definitions. The
// cluster's API sets UID, creationTimestamp, deletionTimestamp and generation
// itself, so an object that it has no copy of gets new ones; everything else is
// written back exactly, managedFields included.
package hostcopy

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// marker is a field that only the private version of a definition has. Writing
// and removing it counts as a change of the object and so raises the generation,
// which the API offers no other way to do.
const marker = "annexGeneration"

// Relax prepares the schema of the private version for writing back. It drops
// all rules on values: an object that annex stores was accepted once, or was in
// the cluster before the rule, and must not be refused on its way back. What decides
// how an object is stored stays: types, defaults, pruning, list types. And it
// adds the marker. It returns a copy.
func Relax(version *apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.CustomResourceDefinitionVersion {
	version = version.DeepCopy()
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return version
	}
	schema := version.Schema.OpenAPIV3Schema
	relax(schema)
	if schema.Properties == nil {
		schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
	}
	schema.Properties[marker] = apiextensionsv1.JSONSchemaProps{Type: "integer", Format: "int64"}
	return version
}

// relax walks a structural schema. What it drops is exactly what a structural
// schema may not use to describe structure
// (apiextensions-apiserver/pkg/apiserver/schema.ValueValidation).
func relax(schema *apiextensionsv1.JSONSchemaProps) {
	schema.Description, schema.Title, schema.ExternalDocs, schema.Example = "", "", nil, nil
	schema.Format, schema.Pattern, schema.Enum, schema.Required = "", "", nil, nil
	schema.Maximum, schema.ExclusiveMaximum, schema.Minimum, schema.ExclusiveMinimum = nil, false, nil, false
	schema.MaxLength, schema.MinLength, schema.MaxItems, schema.MinItems = nil, nil, nil, nil
	schema.UniqueItems, schema.MultipleOf = false, nil
	schema.MaxProperties, schema.MinProperties = nil, nil
	schema.OneOf, schema.Not, schema.XValidations = nil, nil, nil
	schema.AllOf, schema.AnyOf = nil, nil
	for name, property := range schema.Properties {
		relax(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		relax(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		relax(schema.AdditionalProperties.Schema)
	}
	if schema.XListType != nil && *schema.XListType == "map" {
		schema.Items.Schema.Required = requiredKeys(schema)
	}
}

// requiredKeys are the keys of a list of type map that have no default. They
// must stay required (apiextensions-apiserver/pkg/apis/apiextensions/validation).
func requiredKeys(list *apiextensionsv1.JSONSchemaProps) []string {
	var required []string
	for _, key := range list.XListMapKeys {
		if list.Items.Schema.Properties[key].Default == nil {
			required = append(required, key)
		}
	}
	return required
}
