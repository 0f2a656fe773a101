// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcopy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

func gadget(change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "lab.annex.test/v1", "kind": "Gadget",
		"metadata": map[string]any{
			"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": int64(3), "creationTimestamp": "2020-01-01T00:00:00Z",
			"managedFields": []any{map[string]any{"manager": "m"}},
		},
		"spec": map[string]any{"size": int64(1)}, "status": map[string]any{"size": int64(1)},
	}}
	if change != nil {
		change(object)
	}
	return object
}

func TestFormsMatch(t *testing.T) {
	set := func(value any, fields ...string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(u.Object, value, fields...); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[string]struct {
		change   func(*unstructured.Unstructured)
		noStatus bool
		want     bool
	}{
		"nothing":                        {want: true},
		"another version":                {change: set("lab.annex.test/v0annex", "apiVersion"), want: true},
		"another revision":               {change: set("8", "metadata", "resourceVersion"), want: true},
		"another UID":                    {change: set("x", "metadata", "uid"), want: true},
		"spec":                           {change: set(int64(2), "spec", "size")},
		"status":                         {change: set(int64(2), "status", "size")},
		"a label":                        {change: set("b", "metadata", "labels", "a")},
		"a finalizer":                    {change: set([]any{"f"}, "metadata", "finalizers")},
		"managed fields":                 {change: set([]any{}, "metadata", "managedFields")},
		"deleted":                        {change: set("2020-01-01T00:00:00Z", "metadata", "deletionTimestamp")},
		"the copy is ahead":              {change: set(int64(2), "metadata", "generation"), want: true},
		"the copy lags":                  {change: set(int64(4), "metadata", "generation")},
		"the copy lags, nobody looks":    {change: set(int64(4), "metadata", "generation"), noStatus: true, want: true},
		"the copy lags beyond the limit": {change: set(int64(4+MaxRaise), "metadata", "generation"), want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			have, err := FormOf(gadget(nil))
			if err != nil {
				t.Fatal(err)
			}
			wanted, err := FormOf(gadget(tc.change))
			if err != nil {
				t.Fatal(err)
			}
			if got := have.Matches(wanted, !tc.noStatus); got != tc.want {
				t.Errorf("matches is %t, want %t", got, tc.want)
			}
		})
	}
}

func TestWantedNamesNewOwners(t *testing.T) {
	object := gadget(func(u *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{{Name: "o", UID: "old"}, {Name: "p", UID: "other"}})
	})
	before := object.DeepCopy()
	wanted := Wanted(object, Owners{"old": "new"})
	if diff := cmp.Diff([]metav1.OwnerReference{{Name: "o", UID: "new"}, {Name: "p", UID: "other"}}, wanted.GetOwnerReferences()); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, object); diff != "" {
		t.Errorf("the object was changed:\n%s", diff)
	}
	if Wanted(object, Owners{"x": "y"}) != object {
		t.Error("an object without such owners was copied")
	}
}

func TestSchemaIsRelaxed(t *testing.T) {
	version := &apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Description: "d", Required: []string{"spec"},
			XValidations: apiextensionsv1.ValidationRules{{Rule: "true"}},
			Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"metadata": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string", Pattern: "^a"}}},
				"spec": {Type: "object", XPreserveUnknownFields: ptr.To(true), MinProperties: ptr.To[int64](1), Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"color": {Type: "string", Nullable: true, Enum: []apiextensionsv1.JSON{{Raw: []byte(`"red"`)}}, Default: &apiextensionsv1.JSON{Raw: []byte(`"red"`)}},
					"port":  {XIntOrString: true, AnyOf: []apiextensionsv1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}}},
					"parts": {Type: "array", XListType: ptr.To("map"), XListMapKeys: []string{"name", "kind"}, MaxItems: ptr.To[int64](3), Items: &apiextensionsv1.JSONSchemaPropsOrArray{
						Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"name", "size"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"name": {Type: "string", MaxLength: ptr.To[int64](9)}, "size": {Type: "integer", Minimum: ptr.To[float64](1)},
							"kind": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"k"`)}},
						}},
					}},
					"tags": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &apiextensionsv1.JSONSchemaProps{Type: "string", Format: "date"}}},
				}},
			},
		},
	}}
	want := &apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			marker:     {Type: "integer", Format: "int64"},
			"metadata": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string"}}},
			"spec": {Type: "object", XPreserveUnknownFields: ptr.To(true), Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"color": {Type: "string", Nullable: true, Default: &apiextensionsv1.JSON{Raw: []byte(`"red"`)}},
				"port":  {XIntOrString: true},
				"parts": {Type: "array", XListType: ptr.To("map"), XListMapKeys: []string{"name", "kind"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{
					Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"name"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"name": {Type: "string"}, "size": {Type: "integer"},
						"kind": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"k"`)}},
					}},
				}},
				"tags": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
			}},
		},
	}
	before := version.DeepCopy()
	if diff := cmp.Diff(want, Relax(version).Schema.OpenAPIV3Schema); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, version); diff != "" {
		t.Errorf("the argument was changed:\n%s", diff)
	}
}
