// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/test/env"
)

const (
	groupPath = "/apis/" + env.FixtureGroup
	planets   = groupPath + "/v1/planets"
	// small and large are namespaces whose lists are below and above the size from which answers are packed.
	small, large = "small", "large"
	// fatText makes an object, and the metadata of two, larger than that size. It is encoded to three times its length.
	fatText = 24 << 10
)

// gadgets is the path of gadgets of a version, in a namespace or, without one, in all.
func gadgets(version, namespace string) string {
	if namespace == "" {
		return groupPath + "/" + version + "/gadgets"
	}
	return groupPath + "/" + version + "/namespaces/" + namespace + "/gadgets"
}

// shifts is the path of a kind whose schema changes.
func shifts() string { return groupPath + "/v1/namespaces/" + small + "/shifts" }

// resourcePaths are lists that have a cache each.
func resourcePaths() []string {
	return []string{gadgets("v1", ""), gadgets("v1beta1", ""), planets, groupPath + "/v1/shifts"}
}

func (w *world) installDefinitions(ctx context.Context) error {
	for _, definition := range []func() (*apiextensionsv1.CustomResourceDefinition, error){gadgetDefinition, planetDefinition, shiftDefinition} {
		crd, err := definition()
		if err != nil {
			return err
		}
		if err := env.InstallCRD(ctx, w.plain.server.ClientConfig, crd); err != nil {
			return err
		}
	}
	return nil
}

// gadgetDefinition has an old version that warns who uses it.
func gadgetDefinition() (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := env.GadgetCRD()
	if err != nil {
		return nil, err
	}
	old := &crd.Spec.Versions[1]
	old.Deprecated, old.DeprecationWarning = true, ptr.To(`lab.annex.test/v1beta1 is old; "use" v1`)
	return crd, nil
}

// planetDefinition takes unknown fields at every place.
func planetDefinition() (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := env.PlanetCRD()
	if err != nil {
		return nil, err
	}
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields = ptr.To(true)
	return crd, nil
}

// shiftDefinition has the fields of old objects: "gone" is to be removed, "late" is to come.
func shiftDefinition() (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := env.PlanetCRD()
	if err != nil {
		return nil, err
	}
	crd.Name = "shifts." + env.FixtureGroup
	crd.Spec.Scope = apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: "Shift", ListKind: "ShiftList", Plural: "shifts", Singular: "shift"}
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"kept": {Type: "string"},
				"gone": {Type: "object", XPreserveUnknownFields: ptr.To(true)},
			}},
		},
	}
	return crd, nil
}

// document is an object that is created by POST to a path.
type document struct{ path, body string }

// create is the document of an object. The body is that of its JSON without braces, apiVersion and kind.
func create(path, kind, body string) document {
	version := strings.Split(path, "/")[3]
	return document{path, fmt.Sprintf(`{"apiVersion":"%s/%s","kind":%q,%s}`, env.FixtureGroup, version, kind, body)}
}

func quote(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// gadget is the i-th of a series. Each third has no labels and no spec.
func gadget(namespace string, i int) document {
	if i%3 == 2 {
		return create(gadgets("v1", namespace), "Gadget", fmt.Sprintf(`"metadata":{"name":"g-%02d","labels":{},"annotations":{}}`, i))
	}
	return create(gadgets("v1", namespace), "Gadget", fmt.Sprintf(
		`"metadata":{"name":"g-%02d","labels":{"team":%q,"i":"%d"},"annotations":{"a":"<&>","resourceVersion":"1"}},`+
			`"spec":{"color":%q,"size":%d,"hot":%t,"note":"\"resourceVersion\":\"7\""}`,
		i, []string{"a", "b"}[i%2], i, []string{"red", "blue", "green"}[i/3%3], i%4, i%5 == 0))
}

// fatGadget has more metadata and more fields than fit into half an answer that is not packed.
func fatGadget(name string) document {
	text := strings.Repeat("fat<>", fatText/5)
	return create(gadgets("v1", large), "Gadget", fmt.Sprintf(
		`"metadata":{"name":%q,"labels":{"team":"a","size":"fat"},"annotations":{"text":%q}},"spec":{"color":"red","size":2,"note":%q}`, name, text, text))
}

// allObjects are what the tests find, in the order in which it is created.
func allObjects() []document {
	var all []document
	for i := range 18 {
		all = append(all, gadget(small, i))
	}
	for i := range 5 {
		all = append(all, gadget(large, i))
	}
	all = append(all, fatGadget("fat-0"), fatGadget("fat-1"))
	for i := range 4 {
		all = append(all, create(shifts(), "Shift", fmt.Sprintf(`"metadata":{"name":"s-%d"},"spec":{"kept":"k%d","gone":{"deep":{"er":[1,2]}}}`, i, i)))
	}
	values := hardValues()
	for _, name := range sortedKeys(values) {
		all = append(all, create(planets, "Planet", fmt.Sprintf(`"metadata":{"name":%q},%s`, name, values[name])))
	}
	return all
}

func firstObjects() []document { return everySecond(0) }

func laterObjects() []document { return everySecond(1) }

func everySecond(from int) []document {
	var some []document
	for i, one := range allObjects() {
		if i%2 == from {
			some = append(some, one)
		}
	}
	return some
}

// createAll creates objects by a server, and gives gadgets a status.
func (w *world) createAll(ctx context.Context, s *side, all []document) error {
	for _, one := range all {
		if err := s.must(ctx, request{method: http.MethodPost, path: one.path, body: one.body}); err != nil {
			return err
		}
	}
	status := `{"status":{"size":3,"sel":"team=a","conditions":[{"type":"Ready","status":"True"}]}}`
	for _, name := range []string{"g-00", "g-01", "g-02"} {
		_, err := s.ask(ctx, request{
			method: http.MethodPatch, path: gadgets("v1", small) + "/" + name + "/status", body: status,
			header: map[string]string{"Content-Type": "application/merge-patch+json"},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hardValues are what an encoder can get wrong: the fields of planets beside their metadata, by name.
func hardValues() map[string]string {
	deep := strings.Repeat(`{"d":[`, 200) + `null` + strings.Repeat(`]}`, 200)
	return map[string]string{
		"unicode":          `"spec":{"ключ":"значение","日本":"語","emoji":"😀","escaped":"\u00e9\ud83d\ude00","combining":"e\u0301","nul":"\u0000","bom":"\ufeff","highest":"\udbff\udfff"}`,
		"lone-surrogates":  `"spec":{"high":"a\ud800b","low":"a\udc00b","pair":"\ud800\ud800\udc00","\ud800":"key"}`,
		"html":             `"spec":{"<script>":"a < b && c > d","u2028":"a\u2028b\u2029c","literal":"` + "\u2028\u2029" + `","&":"&amp;"}`,
		"escapes":          `"spec":{"quote":"\"","backslash":"\\","slash":"\/","controls":"\b\f\n\r\t\u0001\u001f\u007f","\"key\"\\":"k","\n":"newline"}`,
		"integers":         `"spec":{"most":9223372036854775807,"least":-9223372036854775808,"past":9223372036854775808,"below":-9223372036854775809,"double":9007199254740993,"zero":0,"minus":-0}`,
		"floats":           `"spec":{"a":1e21,"b":1.0,"c":-0.0,"d":0.1,"e":1e-7,"f":1E+2,"g":1.7976931348623157e308,"h":5e-324,"i":123456789.123456789,"j":1e20,"k":100000000000000000000,"l":-1.5,"m":1e-6,"n":0.30000000000000004}`,
		"nothing":          `"spec":{"null":null,"map":{},"list":[],"nulls":[null,null],"text":"","false":false,"inner":{"null":null,"empty":{"e":{}}},"lists":[[],[[]],{}]}`,
		"null-spec":        `"spec":null`,
		"empty-spec":       `"spec":{}`,
		"deep":             `"spec":` + deep,
		"huge":             `"spec":{"text":"` + strings.Repeat("huge & ", 5<<10) + `"}`,
		"wide":             `"spec":{"list":[` + strings.Repeat(`1,`, 5000) + `1]}`,
		"look-alikes":      `"spec":{"resourceVersion":"1","metadata":{"resourceVersion":"2","name":"x"},"text":"\"resourceVersion\":\"3\"","marks":["\u0001RV","\\u0001RV","RV","\u0001","\u0001RV\u0001RV","%s","%!d","{{.}}","$1","\u0000","\ufffd","placeholder","resourceVersion"]}`,
		"unknown-at-top":   `"apple":1,"metadatb":{"resourceVersion":"1"},"metadat":{"resourceVersion":"1"},"zebra":{"kind":"List","apiVersion":"v1"},"resourceVersion":"9","spec":{}`,
		"looks-like-a-pod": `"data":{"a":"YQ=="},"type":"Opaque","status":{"phase":"x","conditions":[]},"spec":{"items":[1],"kind":"List","apiVersion":"v1"}`,
		"keys":             `"spec":{"b":1,"a":2,"B":3,"A":4,"_":5,"":6,"10":7,"9":8,"a.b":9,"a/b":10,"é":11,"z":12,"é2":13}`,
		"twice":            `"spec":{"a":1,"a":2}`,
	}
}
