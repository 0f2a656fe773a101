// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command models-schema prints the OpenAPI v2 schema of the kubeannex.io types.
// hack/update-codegen.sh feeds it to applyconfiguration-gen, which puts it in the
// apply configurations so that they know which lists are maps and which are sets.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kubeannex/annex/pkg/generated/openapi"
)

func main() {
	if err := printSchema(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "models-schema:", err)
		os.Exit(1)
	}
}

// printSchema writes one Swagger document with all generated definitions.
func printSchema(out io.Writer) error {
	definitions := openapi.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + name)
	})
	swagger := spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "Annex", Version: "unversioned"}},
		Definitions: spec.Definitions{},
	}}
	for name, definition := range definitions {
		swagger.Definitions[name] = v2Schema(definition)
	}
	if err := json.NewEncoder(out).Encode(swagger); err != nil {
		return fmt.Errorf("writing schema: %w", err)
	}
	return nil
}

// v2Schema returns the OpenAPI v2 form of a definition. Types such as IntOrString
// carry it as an extension of their v3 form.
func v2Schema(definition common.OpenAPIDefinition) spec.Schema {
	if v2, ok := definition.Schema.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
		return v2
	}
	return definition.Schema
}
