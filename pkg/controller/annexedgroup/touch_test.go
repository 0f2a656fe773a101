// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

const morph = `
metadata:
  name: morphs.lab.annex.test
  uid: "1"
  labels: {app: lab}
  annotations: {owner: somebody}
  finalizers: [customresourcecleanup.apiextensions.k8s.io]
spec:
  group: lab.annex.test
  scope: Namespaced
  names: {kind: Morph, plural: morphs}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1, v1beta1]
      clientConfig:
        service: {namespace: lab, name: converter, path: /convert, port: 8443}
        caBundle: Zm9v
  versions:
  - name: v1
    served: true
    storage: true
    deprecated: true
    deprecationWarning: use v2
    subresources: {status: {}}
    selectableFields: [{jsonPath: .spec.color}]
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string}}}}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func definition(t *testing.T, change ...func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(morph), d); err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(d)
	}
	return d
}

func withoutConversion(d *apiextensionsv1.CustomResourceDefinition) {
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
}

func content(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) string {
	t.Helper()
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTouchIsUndone expects the very bytes of before, but for the finalizer.
func TestTouchIsUndone(t *testing.T) {
	cases := map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"a conversion webhook":     func(*apiextensionsv1.CustomResourceDefinition) {},
		"no conversion":            withoutConversion,
		"nothing about conversion": func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Conversion = nil },
		"no annotations":           func(d *apiextensionsv1.CustomResourceDefinition) { d.Annotations = nil },
		"a webhook by URL": func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://lab.test/convert?a=1&b=<2>")}
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			before := definition(t, change)
			original := before.DeepCopy()
			on, err := touched(before)
			if err != nil {
				t.Fatal(err)
			}
			checkTouched(t, original, on)
			twice, err := touched(on)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(on, twice); diff != "" {
				t.Errorf("the second touch changes something (-first +second):\n%s", diff)
			}
			off, err := untouched(on)
			if err != nil {
				t.Fatal(err)
			}
			want := original.DeepCopy()
			want.Finalizers = append(want.Finalizers, kubeannexv1alpha1.DefinitionFinalizer)
			if diff := cmp.Diff(content(t, want), content(t, off)); diff != "" {
				t.Errorf("untouched (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(content(t, original), content(t, before)); diff != "" {
				t.Errorf("the argument was changed (-want +got):\n%s", diff)
			}
		})
	}
}

func checkTouched(t *testing.T, original, on *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	if on.Spec.Conversion != nil && on.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		t.Errorf("the conversion is %v, want None", on.Spec.Conversion)
	}
	if got, want := len(on.Spec.Versions), len(original.Spec.Versions)+1; got != want {
		t.Fatalf("%d versions, want %d", got, want)
	}
	private := on.Spec.Versions[len(on.Spec.Versions)-1]
	want := *original.Spec.Versions[0].DeepCopy()
	want.Name, want.Storage, want.Deprecated, want.DeprecationWarning = kubeannexv1alpha1.PrivateVersion, false, false, nil
	want.SelectableFields, want.Schema.OpenAPIV3Schema.Description = nil, privateDescription
	if diff := cmp.Diff(want, private); diff != "" {
		t.Errorf("private version (-want +got):\n%s", diff)
	}
}

// TestPrivateVersionIsValid demands that kube-apiserver takes the private version
// beside all the others, whatever schemas and selectable fields these have in
// common, and goes on to take changes of those.
func TestPrivateVersionIsValid(t *testing.T) {
	onlyFirst := func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions = d.Spec.Versions[:1] }
	second := func(change func(*apiextensionsv1.CustomResourceDefinitionVersion)) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(d *apiextensionsv1.CustomResourceDefinition) {
			copied := d.Spec.Versions[0].DeepCopy()
			copied.Name, copied.Storage = "v2", false
			change(copied)
			d.Spec.Versions[1] = *copied
		}
	}
	cases := map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"one version with fields": onlyFirst,
		"one version without fields": func(d *apiextensionsv1.CustomResourceDefinition) {
			onlyFirst(d)
			d.Spec.Versions[0].SelectableFields = nil
		},
		"two versions with the same fields and schema": second(func(*apiextensionsv1.CustomResourceDefinitionVersion) {}),
		"two versions that differ in both": second(func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
			v.SelectableFields, v.Schema.OpenAPIV3Schema.Description = nil, "another"
		}),
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			before := definition(t, change)
			mustBeValid(t, before)
			for title, open := range map[string]func(*apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error){
				"touched": touched, "opened": opened("7"),
			} {
				on, err := open(before)
				if err != nil {
					t.Fatalf("%s: %v", title, err)
				}
				mustBeValid(t, on)
				for i := range on.Spec.Versions {
					if on.Spec.Versions[i].Name != kubeannexv1alpha1.PrivateVersion {
						on.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["fresh"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
					}
				}
				mustBeValid(t, on)
			}
		})
	}
}

// mustBeValid asks upstream's validation, which is what kube-apiserver does with a new definition.
func mustBeValid(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	d = d.DeepCopy()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.Default(d)
	d.Status.StoredVersions = []string{"v1"}
	internal := &apiextensions.CustomResourceDefinition{}
	if err := scheme.Convert(d, internal, nil); err != nil {
		t.Fatal(err)
	}
	if errs := validation.ValidateCustomResourceDefinition(t.Context(), internal); len(errs) > 0 {
		t.Errorf("kube-apiserver refuses it: %v", errs.ToAggregate())
	}
}

func TestUntouchedKeepsWhatOthersSet(t *testing.T) {
	on, err := touched(definition(t))
	if err != nil {
		t.Fatal(err)
	}
	other := &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://other.test")}, ConversionReviewVersions: []string{"v1"},
	}}
	on.Spec.Conversion = other
	off, err := untouched(on)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(other, off.Spec.Conversion); diff != "" {
		t.Errorf("conversion (-want +got):\n%s", diff)
	}
	if _, ok := off.Annotations[conversionAnnotation]; ok {
		t.Error("the annotation is still there")
	}
}

func TestTouchedRefusals(t *testing.T) {
	noStorage := definition(t, func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Storage = false })
	if _, err := touched(noStorage); err == nil {
		t.Error("a definition without a storage version was touched")
	}
	broken := definition(t, withoutConversion, func(d *apiextensionsv1.CustomResourceDefinition) { d.Annotations[conversionAnnotation] = "{" })
	if _, err := untouched(broken); err == nil {
		t.Error("a broken annotation was overlooked")
	}
}

// TestMirror expects annex's definition to be the host's original, whether the host's is touched or not.
func TestMirror(t *testing.T) {
	plain := definition(t)
	on, err := touched(plain)
	if err != nil {
		t.Fatal(err)
	}
	want := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plain.Name, Labels: plain.Labels, Annotations: map[string]string{"owner": "somebody", mirrorAnnotation: "1"}},
		Spec:       plain.Spec,
	}
	for name, host := range map[string]*apiextensionsv1.CustomResourceDefinition{"plain": plain, "touched": on} {
		t.Run(name, func(t *testing.T) {
			got, err := mirrorOf(host)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("mirror (-want +got):\n%s", diff)
			}
			if !isMirror(got) || isMirror(host) {
				t.Error("a mirror must be told from the host's own definition")
			}
		})
	}
}

func TestResourceOf(t *testing.T) {
	on, err := touched(definition(t))
	if err != nil {
		t.Fatal(err)
	}
	res := resourceOf(on)
	if diff := cmp.Diff([]string{"v1", "v2"}, res.served); diff != "" {
		t.Errorf("served versions (-want +got):\n%s", diff)
	}
	if res.storage.Version != "v1" || res.private().Version != kubeannexv1alpha1.PrivateVersion || !res.namespaced {
		t.Errorf("got %+v", res)
	}
	versions := servedVersions([]resource{res, {served: []string{"v2", "v3"}, storage: res.storage}})
	var names []string
	for _, version := range versions {
		names = append(names, version.Version)
	}
	if diff := cmp.Diff([]string{"v1", "v2", "v3"}, names); diff != "" {
		t.Errorf("versions of the group (-want +got):\n%s", diff)
	}
}
