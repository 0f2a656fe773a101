// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder3"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/install"
	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/openapi"
	"github.com/kubeannex/annex/pkg/registry/kubeannex/annexedgroup"
)

// buildModels returns the OpenAPI models of AnnexedGroup as the generic server
// builds them when it installs the group (getOpenAPIModels in
// k8s.io/apiserver/pkg/server/genericapiserver.go).
func buildModels(t *testing.T, scheme *runtime.Scheme) map[string]*spec.Schema {
	t.Helper()
	config := genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, openapinamer.NewDefinitionNamer(scheme))
	models, err := builder3.BuildOpenAPIDefinitionsForResources(config, openapiutil.GetCanonicalTypeName(&kubeannexv1alpha1.AnnexedGroup{}))
	if err != nil {
		t.Fatalf("building OpenAPI models: %v", err)
	}
	return models
}

func newFieldManager(t *testing.T, subresource string, resetFields map[fieldpath.APIVersion]*fieldpath.Set) *managedfields.FieldManager {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	converter, err := managedfields.NewTypeConverter(buildModels(t, scheme), false)
	if err != nil {
		t.Fatalf("building type converter: %v", err)
	}
	manager, err := managedfields.NewDefaultFieldManager(converter, scheme, scheme, scheme,
		kubeannexv1alpha1.SchemeGroupVersion.WithKind("AnnexedGroup"), kubeannex.SchemeGroupVersion, subresource,
		fieldpath.NewExcludeFilterSetMap(resetFields))
	if err != nil {
		t.Fatalf("building field manager: %v", err)
	}
	return manager
}

// applied parses an apply request body. The name is always argoproj.io.
func applied(t *testing.T, body string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(body), &obj.Object); err != nil {
		t.Fatalf("parsing %q: %v", body, err)
	}
	obj.SetAPIVersion("kubeannex.io/v1alpha1")
	obj.SetKind("AnnexedGroup")
	obj.SetName("argoproj.io")
	return obj
}

// TestApplyMergesByKey checks that two appliers own different entries of the
// lists that are maps and sets, which depends on the generated OpenAPI.
func TestApplyMergesByKey(t *testing.T) {
	manager := newFieldManager(t, "", annexedgroup.Strategy{}.GetResetFields())
	live := runtime.Object(&kubeannex.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: "argoproj.io"}})
	for _, request := range []struct{ owner, body string }{
		{"first", "spec: {resources: [{resource: workflows, indexLabels: [app]}]}"},
		{"second", "spec: {resources: [{resource: workflows, indexLabels: [team]}, {resource: cronworkflows}]}"},
	} {
		var err error
		if live, err = manager.Apply(live, applied(t, request.body), request.owner, false); err != nil {
			t.Fatalf("applying as %s: %v", request.owner, err)
		}
	}
	want := []kubeannex.AnnexedResourceSpec{
		{Resource: "workflows", IndexLabels: []string{"app", "team"}},
		{Resource: "cronworkflows"},
	}
	if diff := cmp.Diff(want, live.(*kubeannex.AnnexedGroup).Spec.Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

// TestApplyOwnsNoResetFields checks that nobody becomes owner of a field that
// the strategy takes back.
func TestApplyOwnsNoResetFields(t *testing.T) {
	const everything = `
metadata: {labels: {team: a}, annotations: {note: b}, finalizers: [example.com/keep]}
spec: {resources: [{resource: workflows}]}
status: {phase: Annexed}`
	cases := map[string]struct {
		subresource string
		resetFields map[fieldpath.APIVersion]*fieldpath.Set
		want        string
	}{
		"main resource": {
			resetFields: annexedgroup.Strategy{}.GetResetFields(),
			want: `{"f:metadata":{"f:annotations":{"f:note":{}},"f:finalizers":{"v:\"example.com/keep\"":{}},"f:labels":{"f:team":{}}},` +
				`"f:spec":{"f:resources":{"k:{\"resource\":\"workflows\"}":{".":{},"f:resource":{}}}}}`,
		},
		"status": {
			subresource: "status", resetFields: annexedgroup.StatusStrategy{}.GetResetFields(),
			want: `{"f:status":{"f:phase":{}}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			manager := newFieldManager(t, tc.subresource, tc.resetFields)
			live := &kubeannex.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: "argoproj.io"}}
			obj, err := manager.Apply(live, applied(t, everything), "owner", false)
			if err != nil {
				t.Fatalf("applying: %v", err)
			}
			entries := obj.(*kubeannex.AnnexedGroup).ManagedFields
			if len(entries) != 1 {
				t.Fatalf("managed fields: got %d entries, want 1", len(entries))
			}
			if diff := cmp.Diff(tc.want, string(entries[0].FieldsV1.GetRawBytes())); diff != "" {
				t.Errorf("owned fields (-want +got):\n%s", diff)
			}
		})
	}
}

// TestModels checks the names and descriptions that kubectl explain shows.
func TestModels(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	models := buildModels(t, scheme)
	model, ok := models["io.kubeannex.v1alpha1.AnnexedGroup"]
	if !ok {
		t.Fatalf("no model io.kubeannex.v1alpha1.AnnexedGroup in %d models", len(models))
	}
	want := []any{map[string]any{"group": "kubeannex.io", "version": "v1alpha1", "kind": "AnnexedGroup"}}
	if diff := cmp.Diff(want, model.Extensions["x-kubernetes-group-version-kind"]); diff != "" {
		t.Errorf("group, version, kind (-want +got):\n%s", diff)
	}
	if phase := models["io.kubeannex.v1alpha1.AnnexedGroupStatus"].Properties["phase"]; len(phase.Enum) != 17 {
		t.Errorf("phases in the schema: got %d, want 17", len(phase.Enum))
	}
	for name, model := range models {
		for property, schema := range model.Properties {
			if schema.Description == "" && property != "kind" && property != "apiVersion" {
				t.Errorf("%s.%s has no description", name, property)
			}
		}
	}
}
