// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kubeannex/annex/test/env"
)

// odd is an object that is put into etcd past the servers.
const odd = "odd"

// TestStoredByOthers puts objects into etcd as servers of other versions, importers and people may have put them, and
// compares what the servers make of them.
func TestStoredByOthers(t *testing.T) {
	w := shared
	const (
		head = `"apiVersion":"lab.annex.test/v1","kind":"Gadget"`
		meta = `"name":"` + odd + `","namespace":"stored","uid":"7dbf1a3e-5b0c-4c6e-9d3c-000000000001","creationTimestamp":"2034-01-02T15:04:05Z"`
	)
	values := map[string]string{
		"as it is":                  `{` + head + `,"metadata":{` + meta + `,"generation":1},"spec":{"color":"red"}}`,
		"with space":                "\n {\t" + strings.ReplaceAll(head, ":", " : ") + ` , "metadata" : { ` + meta + ` } , "spec" : { "color" : "red" } }` + "\n\n",
		"in another order":          `{"spec":{"size":2,"color":"red"},"status":{"size":1},"metadata":{"labels":{"z":"1","a":"2"},` + meta + `},"kind":"Gadget","apiVersion":"lab.annex.test/v1"}`,
		"with a version":            `{` + head + `,"metadata":{"resourceVersion":"5",` + meta + `,"selfLink":"/x"}}`,
		"with a version of a sort":  `{` + head + `,"metadata":{"resourceVersion":5,` + meta + `}}`,
		"with an empty version":     `{` + head + `,"metadata":{"resourceVersion":"",` + meta + `}}`,
		"in the old version":        `{"apiVersion":"lab.annex.test/v1beta1","kind":"Gadget","metadata":{` + meta + `},"spec":{"size":2}}`,
		"of another kind":           `{"apiVersion":"lab.annex.test/v1","kind":"Planet","metadata":{` + meta + `},"spec":{"size":2}}`,
		"under another name":        `{` + head + `,"metadata":{"name":"other","namespace":"stored"}}`,
		"of another namespace":      `{` + head + `,"metadata":{"name":"` + odd + `","namespace":"other"}}`,
		"without a namespace":       `{` + head + `,"metadata":{"name":"` + odd + `"}}`,
		"with unknown metadata":     `{` + head + `,"metadata":{` + meta + `,"colour":"red","clusterName":"x"},"spec":{"unknown":{"a":1},"color":"red"},"top":1}`,
		"with labels of a sort":     `{` + head + `,"metadata":{` + meta + `,"labels":{"a":1,"b":"2"},"annotations":["x"]},"spec":{"color":"red"}}`,
		"with metadata of a sort":   `{` + head + `,"metadata":{` + meta + `,"finalizers":"x","generation":"1","ownerReferences":{},"deletionTimestamp":"soon"}}`,
		"with empty metadata":       `{` + head + `,"metadata":{` + meta + `,"labels":{},"annotations":null,"finalizers":[],"ownerReferences":null,"managedFields":[]}}`,
		"with odd managed fields":   `{` + head + `,"metadata":{` + meta + `,"managedFields":[{"manager":"m","operation":"Update","apiVersion":"lab.annex.test/v1","time":"2034-01-02T15:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"k:{\"a\":\"<&>\"}":{}}}}]}}`,
		"with fields twice":         `{` + head + `,"metadata":{` + meta + `},"spec":{"color":"red","color":"blue"},"spec":{"size":1}}`,
		"with fields of a sort":     `{` + head + `,"metadata":{` + meta + `},"spec":{"color":7,"size":"x","hot":null},"status":[]}`,
		"with nulls":                `{` + head + `,"metadata":{` + meta + `},"spec":null,"status":null}`,
		"with numbers":              `{` + head + `,"metadata":{` + meta + `},"spec":{"size":1e2},"status":{"size":1.0}}`,
		"with broken text":          `{` + head + `,"metadata":{` + meta + `},"spec":{"note":"a` + "\xff\xc0\x80" + `b\ud800"}}`,
		"with the mark of a hole":   `{` + head + `,"metadata":{` + meta + `,"annotations":{"resourceVersion":"1","a":"\"resourceVersion\":\"\""}},"spec":{"note":"\u0001RV"}}`,
		"with fields in upper case": `{` + head + `,"Metadata":{"name":"x"},"metadata":{` + meta + `,"ResourceVersion":"7","Name":"x"},"Spec":{"color":"red"},"spec":{"Color":"red"}}`,
	}
	const key = "/registry/lab.annex.test/gadgets/stored/" + odd
	for _, name := range sortedKeys(values) {
		t.Run(name, func(t *testing.T) {
			w.mustSettle(t)
			before := fmt.Sprint(w.etcd.Revision())
			if _, err := w.client.Put(t.Context(), key, values[name]); err != nil {
				t.Fatal(err)
			}
			w.sameStored(t)
			if _, err := w.client.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(values[name], meta) {
				return // a watch of the namespace does not see it
			}
			var streams []*pairOfStreams
			for _, accept := range []string{jsonType, as(jsonType, "Table", "v1"), as(protobufType, "PartialObjectMetadata", "v1")} {
				streams = append(streams, w.watchBoth(t, get(gadgets("v1", "stored")+"?watch=1&timeoutSeconds=30&resourceVersion="+before, "Accept", accept), odd))
			}
			for _, both := range streams {
				both.compare(t, w)
			}
		})
	}
	w.mustSettle(t)
}

// sameStored compares what there is to be asked about an object that may not be understood.
func (w *world) sameStored(t *testing.T) {
	t.Helper()
	for _, version := range []string{"v1", "v1beta1"} {
		list := gadgets(version, "stored")
		for _, query := range []string{"", "?resourceVersion=0", "?limit=1", "?labelSelector=a", "?fieldSelector=spec.color%3Dred", "?fieldSelector=metadata.name%3D" + odd} {
			w.same(t, get(list+query))
		}
		for _, accept := range []string{jsonType, yamlType, as(jsonType, "Table", "v1")} {
			w.same(t, get(list+"/"+odd, "Accept", accept))
			w.same(t, get(list+"/"+odd+"?resourceVersion=0", "Accept", accept))
			w.same(t, get(list, "Accept", accept))
		}
		w.same(t, get(list, "Accept", as(protobufType, "PartialObjectMetadataList", "v1")))
		w.same(t, get(list+"/"+odd+"/scale"))
		w.same(t, request{method: http.MethodPatch, path: list + "/" + odd + "?dryRun=All", body: `{"metadata":{"generation":1}}`, header: map[string]string{"Content-Type": mergePatch}})
	}
}

// TestNotUnderstood puts objects into etcd that no server understands. Their caches do not get past that,
// so only what comes from etcd is compared.
func TestNotUnderstood(t *testing.T) {
	w := shared
	wrecks := w.installKind(t, "Wreck", "wrecks")
	values := map[string]string{
		"no JSON": `{`, "no object": `[]`, "an empty map": `{}`, "without a kind": `{"apiVersion":"lab.annex.test/v1","metadata":{"name":"odd"}}`,
		"in an unknown version": `{"apiVersion":"lab.annex.test/v7","kind":"Wreck","metadata":{"name":"odd"}}`,
		"of another group":      `{"apiVersion":"other.annex.test/v1","kind":"Wreck","metadata":{"name":"odd"}}`,
	}
	for _, name := range sortedKeys(values) {
		t.Run(name, func(t *testing.T) {
			const key = "/registry/lab.annex.test/wrecks/odd"
			if _, err := w.client.Put(t.Context(), key, values[name]); err != nil {
				t.Fatal(err)
			}
			w.same(t, get(wrecks+"/odd"))
			w.same(t, get(wrecks+"/odd", "Accept", as(jsonType, "Table", "v1")))
			w.same(t, patch(mergePatch, wrecks+"/odd?dryRun=All", `{"metadata":{"labels":{"a":"b"}}}`))
			w.same(t, request{method: http.MethodDelete, path: wrecks + "/odd?dryRun=All"})
			if _, err := w.client.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestItemsAtTheTop creates objects that look like lists. Upstream stores them, and then neither server can read them: so they are
// not created for good.
func TestItemsAtTheTop(t *testing.T) {
	w := shared
	bags := w.installKind(t, "Bag", "bags")
	for _, items := range []string{`[]`, `[{"apiVersion":"lab.annex.test/v1","kind":"Bag","metadata":{"name":"inner"}}]`, `[1]`, `{"a":1}`, `"x"`, `null`} {
		body := create(bags, "Bag", `"metadata":{"name":"bag"},"items":`+items).body
		var heard []string
		for _, s := range w.sides() {
			got, err := s.ask(t.Context(), request{method: http.MethodPost, path: bags + "?dryRun=All", body: body})
			if err != nil {
				t.Fatal(err)
			}
			heard = append(heard, fmt.Sprint(got.code, " ", anonymous(got.body)))
		}
		if diff := cmp.Diff(heard[0], heard[1]); diff != "" {
			t.Errorf("items %s (-plain +compact):\n%s", items, diff)
		}
	}
}

// installKind defines a kind that takes unknown fields at every place, and returns its path.
func (w *world) installKind(t *testing.T, kind, plural string) string {
	t.Helper()
	crd, err := planetDefinition()
	if err != nil {
		t.Fatal(err)
	}
	crd.Name = plural + "." + env.FixtureGroup
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)}
	if err := env.InstallCRD(t.Context(), w.plain.server.ClientConfig, crd); err != nil {
		t.Fatal(err)
	}
	path := groupPath + "/v1/" + plural
	w.awaitServed(t, path)
	return path
}
