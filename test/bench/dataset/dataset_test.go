// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"bytes"
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuralpruning "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/kubeannex/annex/test/golden"
)

func shape() Shape { return Shape{Seed: 1, Nodes: 40, Namespaces: 5} }

func TestEndpoint(t *testing.T) {
	content, err := json.MarshalIndent(created(t, shape(), Endpoints, 12345), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "endpoint.json", string(content)+"\n")
}

func TestObjectsAreDeterministic(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			first := content(t, shape(), kind, 7)
			if !bytes.Equal(first, content(t, shape(), kind, 7)) {
				t.Errorf("the same object twice differs")
			}
			other := shape()
			other.Seed = 2
			if bytes.Equal(first, content(t, other, kind, 7)) {
				t.Errorf("another seed gives the same object")
			}
			if bytes.Equal(first, content(t, shape(), kind, 7+shape().Nodes)) {
				t.Errorf("another object of the node has the same content")
			}
			annexed, err := shape().JSON(AnnexedGroup, kind, 7)
			if err != nil {
				t.Fatalf("JSON: %v", err)
			}
			host, err := shape().JSON(HostGroup, kind, 7)
			if err != nil {
				t.Fatalf("JSON: %v", err)
			}
			if renamed := bytes.ReplaceAll(annexed, []byte(AnnexedGroup), []byte(HostGroup)); !bytes.Equal(host, renamed) {
				t.Errorf("the groups differ in more than apiVersion")
			}
		})
	}
}

// content is an object without its metadata.
func content(t *testing.T, s Shape, kind Kind, i int) []byte {
	t.Helper()
	object := s.Object(HostGroup, kind, i)
	delete(object.Object, "metadata")
	content, err := object.MarshalJSON()
	if err != nil {
		t.Fatalf("MarshalJSON: %v", err)
	}
	return content
}

// created is an object as a server returns it after a create.
func created(t *testing.T, s Shape, kind Kind, i int) *unstructured.Unstructured {
	t.Helper()
	object := s.Object(HostGroup, kind, i)
	gvk := object.GroupVersionKind()
	manager, err := managedfields.NewDefaultCRDFieldManager(
		managedfields.NewDeducedTypeConverter(), converter{}, converter{}, runtime.NewScheme(), gvk, gvk.GroupVersion(), "", nil)
	if err != nil {
		t.Fatalf("NewDefaultCRDFieldManager: %v", err)
	}
	live := &unstructured.Unstructured{Object: map[string]any{}}
	live.SetGroupVersionKind(gvk)
	updated, err := manager.Update(live, object, kind.Manager())
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	object = updated.(*unstructured.Unstructured)
	at := metav1.Date(2026, time.March, 2, 8, 0, 0, 0, time.UTC)
	fields := object.GetManagedFields()
	for n := range fields {
		fields[n].Time = &at
	}
	object.SetManagedFields(fields)
	object.SetUID("00000000-0000-0000-0000-000000000000")
	object.SetResourceVersion("1000000")
	object.SetGeneration(1)
	object.SetCreationTimestamp(at)
	return object
}

// converter has one version and no defaults.
type converter struct{ runtime.ObjectConvertor }

func (converter) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (converter) Default(runtime.Object) {}

func TestSizes(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			for _, i := range []int{0, 99999} {
				body, err := created(t, Shape{Seed: 1, Nodes: 4000, Namespaces: 50}, kind, i).MarshalJSON()
				if err != nil {
					t.Fatalf("MarshalJSON: %v", err)
				}
				if size := len(body); size < kind.Bytes()*9/10 || size > kind.Bytes()*11/10 {
					t.Errorf("object %d has %d bytes, want %d", i, size, kind.Bytes())
				}
			}
		})
	}
}

func TestSelections(t *testing.T) {
	const count = 1003
	s := Shape{Seed: 1, Nodes: 40, Namespaces: 7}
	cases := map[string]struct {
		selection Selection
		wantCount int
		wantPath  string
		matches   func(*unstructured.Unstructured) bool
	}{
		"all": {
			selection: s.All(), wantCount: count, wantPath: "/apis/host.bench.annex.test/v1/endpoints?resourceVersion=0",
			matches: func(*unstructured.Unstructured) bool { return true },
		},
		"a node": {
			selection: s.OnNode(2), wantCount: 26,
			wantPath: "/apis/host.bench.annex.test/v1/endpoints?fieldSelector=spec.nodeName%3Dnode-0002&resourceVersion=0",
			matches: func(o *unstructured.Unstructured) bool {
				node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
				return node == "node-0002"
			},
		},
		"a node beyond the last": {
			selection: s.OnNode(40), wantCount: 0,
			wantPath: "/apis/host.bench.annex.test/v1/endpoints?fieldSelector=spec.nodeName%3Dnode-0040&resourceVersion=0",
			matches:  func(*unstructured.Unstructured) bool { return false },
		},
		"a namespace": {
			selection: s.InNamespace(3), wantCount: 143,
			wantPath: "/apis/host.bench.annex.test/v1/namespaces/bench-03/endpoints?resourceVersion=0",
			matches:  func(o *unstructured.Unstructured) bool { return o.GetNamespace() == "bench-03" },
		},
		"a node by label": {
			selection: s.OnLabeledNode(3), wantCount: s.OnNode(3).Count(count),
			wantPath: "/apis/host.bench.annex.test/v1/endpoints?labelSelector=node%3Dnode-0003&resourceVersion=0",
			matches:  func(o *unstructured.Unstructured) bool { return o.GetLabels()[NodeLabel] == "node-0003" },
		},
		"an app": {
			selection: s.OfApp(99), wantCount: 8,
			wantPath: "/apis/host.bench.annex.test/v1/endpoints?labelSelector=app%3Dapp-99&resourceVersion=0",
			matches:  func(o *unstructured.Unstructured) bool { return o.GetLabels()[AppLabel] == "app-99" },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var want []int
			for i := range count {
				if tc.matches(s.Object(HostGroup, Endpoints, i)) {
					want = append(want, i)
				}
			}
			if diff := cmp.Diff(want, tc.selection.Indexes(count)); diff != "" {
				t.Errorf("unexpected objects, -want +got:\n%s", diff)
			}
			if got := tc.selection.Count(count); got != tc.wantCount {
				t.Errorf("%d objects are selected, want %d", got, tc.wantCount)
			}
			extra := url.Values{"resourceVersion": {"0"}}
			if got := tc.selection.Path(HostGroup, Version, Endpoints, extra); got != tc.wantPath {
				t.Errorf("the path is %s, want %s", got, tc.wantPath)
			}
			if len(extra) != 1 {
				t.Errorf("the extra parameters were changed: %v", extra)
			}
		})
	}
}

// TestSeedSizes checks the counts that the issue of the benchmark names.
func TestSeedSizes(t *testing.T) {
	const count = 100_000
	s := Shape{Nodes: 4000, Namespaces: 50}
	got := []int{s.OnNode(17).Count(count), s.InNamespace(17).Count(count), s.OfApp(17).Count(count)}
	if diff := cmp.Diff([]int{25, 2000, 1000}, got); diff != "" {
		t.Errorf("unexpected counts, -want +got:\n%s", diff)
	}
	namespaces := map[int]bool{}
	for _, i := range s.OnNode(17).Indexes(count) {
		namespaces[s.Namespace(i)] = true
	}
	if len(namespaces) != 25 {
		t.Errorf("the objects of a node are in %d namespaces, want 25", len(namespaces))
	}
}

func TestDefinitions(t *testing.T) {
	cases := map[string]struct {
		options    DefinitionOptions
		wantServed []string
		wantFields int
	}{
		"one version":       {wantServed: []string{Version}, wantFields: 1},
		"two versions":      {options: DefinitionOptions{OldVersion: true}, wantServed: []string{Version, OldVersion}, wantFields: 2},
		"no fields":         {options: DefinitionOptions{WithoutFields: true}, wantServed: []string{Version}},
		"neither of fields": {options: DefinitionOptions{OldVersion: true, WithoutFields: true}, wantServed: []string{Version, OldVersion}},
	}
	for name, tc := range cases {
		for _, kind := range Kinds() {
			t.Run(name+" of "+kind.String(), func(t *testing.T) {
				definition := internal(t, Definition(AnnexedGroup, kind, tc.options))
				var served []string
				fields := 0
				for _, version := range definition.Spec.Versions {
					served = append(served, version.Name)
					fields += len(version.SelectableFields)
				}
				fields += len(definition.Spec.SelectableFields) * len(served)
				if diff := cmp.Diff(tc.wantServed, served); diff != "" || fields != tc.wantFields {
					t.Errorf("unexpected versions, %d selectable fields, want %d, -want +got:\n%s", fields, tc.wantFields, diff)
				}
				if errs := validation.ValidateCustomResourceDefinition(t.Context(), definition); len(errs) > 0 {
					t.Errorf("the definition is not valid: %v", errs.ToAggregate())
				}
			})
		}
	}
}

// internal is a definition as a server decodes it.
func internal(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	t.Helper()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
	decoded := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, decoded, nil); err != nil {
		t.Fatalf("converting the definition: %v", err)
	}
	decoded.Status.StoredVersions = []string{Version}
	return decoded
}

// TestObjectsFit finds fields that the schema does not have, and values that it forbids.
func TestObjectsFit(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			checkObject(t, internal(t, Definition(AnnexedGroup, kind, DefinitionOptions{})), kind)
		})
	}
}

func checkObject(t *testing.T, definition *apiextensions.CustomResourceDefinition, kind Kind) {
	t.Helper()
	props, err := apiextensions.GetSchemaForVersion(definition, Version)
	if err != nil {
		t.Fatalf("GetSchemaForVersion: %v", err)
	}
	structural, err := structuralschema.NewStructural(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("NewStructural: %v", err)
	}
	object := shape().Object(AnnexedGroup, kind, 3)
	if got, want := object.GroupVersionKind(), (schema.GroupVersionKind{Group: AnnexedGroup, Version: Version, Kind: definition.Spec.Names.Kind}); got != want {
		t.Errorf("the object is a %s, want %s", got, want)
	}
	pruned := structuralpruning.PruneWithOptions(object.Object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(pruned) > 0 {
		t.Errorf("the schema lacks the fields %v", pruned)
	}
	validator, _, err := schemavalidation.NewSchemaValidator(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("NewSchemaValidator: %v", err)
	}
	if errs := schemavalidation.ValidateCustomResource(nil, object.Object, validator); len(errs) > 0 {
		t.Errorf("the object is not valid: %v", errs.ToAggregate())
	}
}
