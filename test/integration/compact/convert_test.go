// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/test/env"
)

// converter is a conversion webhook that notes the version in the spec.
type converter struct {
	// fails makes it refuse what has a label "refused".
	fails atomic.Bool
}

// ServeHTTP answers a conversion review.
func (c *converter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	answer := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, object := range review.Request.Objects {
		converted, err := c.convert(object.Raw, review.Request.DesiredAPIVersion)
		if err != nil {
			answer = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}}
			break
		}
		answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Raw: converted})
	}
	review.Request, review.Response = nil, answer
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(review) //nolint:errcheck // a client that has gone away
}

func (c *converter) convert(raw []byte, version string) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if c.fails.Load() && strings.Contains(string(raw), `"refused":`) {
		return nil, fmt.Errorf("<refused> by \"the webhook\"")
	}
	object["apiVersion"] = version
	if spec, ok := object["spec"].(map[string]any); ok {
		spec["in"] = version
	}
	return json.Marshal(object)
}

// TestConversionWebhook compares a kind whose versions a webhook converts, also while it fails.
func TestConversionWebhook(t *testing.T) {
	w := shared
	webhook := &converter{}
	server := httptest.NewTLSServer(webhook)
	t.Cleanup(server.Close)
	installMorphs(t, w.plain, server)
	first, second := groupPath+"/v1/morphs", groupPath+"/v2/morphs"
	w.awaitServed(t, first)
	w.awaitServed(t, second)
	begin := fmt.Sprint(w.etcd.Revision())
	for i := range 6 {
		path := []string{first, second}[i%2]
		body := create(path, "Morph", fmt.Sprintf(`"metadata":{"name":"m-%d","labels":{"i":"%d"}},"spec":{"color":"<%d>"}`, i, i%3, i)).body
		if err := w.sides()[i/3].must(t.Context(), request{method: http.MethodPost, path: path, body: body}); err != nil {
			t.Fatal(err)
		}
	}
	w.sameMorphs(t, begin)
	if err := w.compact.must(t.Context(), patch(mergePatch, second+"/m-0", `{"metadata":{"labels":{"refused":"yes"}}}`)); err != nil {
		t.Fatal(err)
	}
	w.sameMorphs(t, begin)
	webhook.fails.Store(true)
	for _, r := range []request{
		get(first + "/m-0"), get(second + "/m-0"), get(second + "/m-0?resourceVersion=0"), get(second + "?resourceVersion=0"), get(second + "?limit=1"), get(second + "/m-1"),
		get(second + "?resourceVersion=" + begin + exact), get(second+"/m-0", "Accept", as(jsonType, "Table", "v1")),
		patch(mergePatch, second+"/m-0?dryRun=All", `{"spec":{"size":1}}`), patch(mergePatch, first+"/m-0?dryRun=All", `{"metadata":{"generation":1}}`),
		{method: http.MethodDelete, path: second + "/m-0?dryRun=All"}, {method: http.MethodDelete, path: second + "?dryRun=All"},
	} {
		w.same(t, r)
	}
	webhook.fails.Store(false)
	w.sameMorphs(t, begin)
}

func installMorphs(t *testing.T, s *side, webhook *httptest.Server) {
	t.Helper()
	crd, err := env.PlanetCRD()
	if err != nil {
		t.Fatal(err)
	}
	crd.Name = "morphs." + env.FixtureGroup
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: "Morph", ListKind: "MorphList", Plural: "morphs", Singular: "morph"}
	later := *crd.Spec.Versions[0].DeepCopy()
	later.Name, later.Storage = "v2", false
	later.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}}
	later.Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{
		Type: "object", XPreserveUnknownFields: ptr.To(true), Properties: map[string]apiextensionsv1.JSONSchemaProps{"color": {Type: "string"}},
	}
	crd.Spec.Versions = append(crd.Spec.Versions, later)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL:      ptr.To(webhook.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}),
			},
		},
	}
	if err := env.InstallCRD(t.Context(), s.server.ClientConfig, crd); err != nil {
		t.Fatal(err)
	}
}

// sameMorphs compares both versions in every form.
func (w *world) sameMorphs(t *testing.T, begin string) {
	t.Helper()
	var watches sync.WaitGroup
	for _, list := range []string{groupPath + "/v1/morphs", groupPath + "/v2/morphs"} {
		for _, s := range w.sides() {
			if err := w.settleOne(t.Context(), s, list); err != nil {
				t.Fatal(err)
			}
		}
		for _, query := range []string{"", "?resourceVersion=0", "?limit=2", "?labelSelector=i%3D1", "?fieldSelector=spec.color%3D%3C3%3E", "?resourceVersion=" + fmt.Sprint(w.etcd.Revision()) + exact} {
			for _, accept := range []string{jsonType, yamlType, as(jsonType, "Table", "v1"), as(jsonType, "PartialObjectMetadataList", "v1"), as(protobufType, "PartialObjectMetadataList", "v1")} {
				w.same(t, get(list+query, "Accept", accept))
			}
		}
		w.same(t, get(list+"/m-0"))
		w.same(t, get(list+"/m-1?resourceVersion=0"))
		for _, accept := range []string{jsonType, as(jsonType, "Table", "v1"), as(protobufType, "PartialObjectMetadata", "v1")} {
			watches.Go(func() {
				w.same(t, get(list+"?watch=1&timeoutSeconds=1&resourceVersion="+begin, "Accept", accept))
			})
		}
	}
	watches.Wait()
}
