// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefinitionOptions are what scenarios vary of a definition.
type DefinitionOptions struct {
	// OldVersion serves OldVersion besides Version.
	OldVersion bool
	// WithoutFields leaves selectableFields out.
	WithoutFields bool
}

// Definition is the definition of a kind in a group. The status is no subresource,
// so that one request creates a whole object.
func Definition(group string, kind Kind, options DefinitionOptions) *apiextensionsv1.CustomResourceDefinition {
	versions := []apiextensionsv1.CustomResourceDefinitionVersion{definitionVersion(Version, kind, options)}
	if options.OldVersion {
		versions = append(versions, definitionVersion(OldVersion, kind, options))
	}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{
			APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition",
		},
		ObjectMeta: metav1.ObjectMeta{Name: kind.Resource() + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: kind.Resource(), Singular: kind.Singular(), Kind: kind.Name(), ListKind: kind.Name() + "List",
			},
			Versions: versions,
		},
	}
}

func definitionVersion(version string, kind Kind, options DefinitionOptions) apiextensionsv1.CustomResourceDefinitionVersion {
	served := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: version, Served: true, Storage: version == Version,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: kind.schema()},
	}
	if !options.WithoutFields {
		served.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: "." + NodeField}}
	}
	return served
}

func (k Kind) schema() *apiextensionsv1.JSONSchemaProps {
	properties := map[string]apiextensionsv1.JSONSchemaProps{
		"apiVersion": text(), "kind": text(), "metadata": {Type: "object"},
	}
	switch k {
	case Reports:
		properties["spec"] = record("nodeName", "scanner")
		properties["summary"] = object(map[string]apiextensionsv1.JSONSchemaProps{
			"pass": integer(), "fail": integer(), "warn": integer(),
		})
		properties["results"] = list(record("policy", "rule", "category", "severity", "result", "message", "resource", "digest"))
	case Flows:
		properties["spec"] = record("nodeName", "entrypoint", "serviceAccountName", "image")
		properties["status"] = object(map[string]apiextensionsv1.JSONSchemaProps{
			"phase": text(), "progress": text(), "startedAt": text(), "steps": mapOf(stepSchema()),
		})
	default:
		properties["spec"] = object(map[string]apiextensionsv1.JSONSchemaProps{
			"nodeName": text(), "hostIP": text(), "ip": text(), "mac": text(), "serviceAccount": text(),
			"identity": integer(), "identityLabels": list(text()),
			"ports": list(object(map[string]apiextensionsv1.JSONSchemaProps{
				"name": text(), "protocol": text(), "port": integer(),
			})),
		})
		properties["status"] = record("state", "health", "lastSeen", "policyRevision")
	}
	schema := object(properties)
	return &schema
}

func stepSchema() apiextensionsv1.JSONSchemaProps {
	schema := record("id", "name", "template", "phase", "startedAt", "finishedAt", "host", "message")
	schema.Properties["inputs"] = list(record("name", "value"))
	schema.Properties["outputs"] = list(record("name", "value"))
	return schema
}

func text() apiextensionsv1.JSONSchemaProps { return apiextensionsv1.JSONSchemaProps{Type: "string"} }

func integer() apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "integer", Format: "int64"}
}

func object(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
}

// record is an object whose fields are all text.
func record(names ...string) apiextensionsv1.JSONSchemaProps {
	properties := make(map[string]apiextensionsv1.JSONSchemaProps, len(names))
	for _, name := range names {
		properties[name] = text()
	}
	return object(properties)
}

func list(items apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}}
}

func mapOf(values apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{
		Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &values},
	}
}
