// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	cborType     = "application/cbor"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// escapeField is a term of a field selector, ready for a query.
func escapeField(label, value string) string {
	return url.QueryEscape(label + "=" + strings.NewReplacer(`\`, `\\`, `,`, `\,`, `=`, `\=`).Replace(value))
}

// TestAccept reproduces kubernetes/kubernetes 55541, 128497 and 128641: custom resources come as
// JSON or YAML, a client that takes neither gets 406 with a Status, and a client that takes more
// gets JSON.
func TestAccept(t *testing.T) {
	accepts := map[string]struct {
		accept string
		// wantType is the type of a GET and LIST, empty for 406.
		wantType string
		// wantWatch is the type of a WATCH, empty for 406.
		wantWatch string
	}{
		"JSON":                     {jsonType, jsonType, jsonType},
		"YAML":                     {"application/yaml", "application/yaml", ""},
		"protobuf":                 {protobufType, "", ""},
		"protobuf stream":          {protobufType + ";stream=watch", "", ""},
		"protobuf, then JSON":      {protobufType + "," + jsonType, jsonType, jsonType},
		"JSON, then protobuf":      {jsonType + "," + protobufType, jsonType, jsonType},
		"protobuf preferred":       {protobufType + ";q=1," + jsonType + ";q=0.1", jsonType, jsonType},
		"CBOR":                     {cborType, "", ""},
		"CBOR sequence":            {"application/cbor-seq", "", ""},
		"CBOR, then JSON":          {cborType + "," + jsonType, jsonType, jsonType},
		"CBOR, then anything":      {cborType + ",*/*", jsonType, jsonType},
		"CBOR sequence, then JSON": {"application/cbor-seq," + cborType + ";q=0.9," + jsonType + ";q=0.5", jsonType, jsonType},
		"anything":                 {"*/*", jsonType, jsonType},
		"any application":          {"application/*", jsonType, jsonType},
		"none":                     {"-", jsonType, jsonType},
		"plain text":               {"text/plain", "", ""},
		"HTML":                     {"text/html", "", ""},
		"browser":                  {"text/html,application/xhtml+xml,*/*;q=0.8", jsonType, jsonType},
		"no form":                  {"a/b/c;;,", "", ""},
		"stream of JSON":           {jsonType + ";stream=watch", jsonType, jsonType},
		"unknown parameter":        {jsonType + ";colour=red", jsonType, jsonType},
		"unknown character set":    {jsonType + ";charset=latin-1", jsonType, jsonType},
		"unknown kind":             {jsonType + ";as=Chart;v=v1;g=meta.k8s.io", "", ""},
		"table in protobuf":        {protobufType + ";as=Table;v=v1;g=meta.k8s.io", "", ""},
		"unknown kind, then JSON":  {jsonType + ";as=Chart;v=v1;g=meta.k8s.io," + jsonType, jsonType, jsonType},
	}
	compare(t, func(s *session) {
		s.do("create", http.MethodPost, s.gadgets(), gadget("g", `{"color":"red"}`)).want(http.StatusCreated)
		for _, name := range sortedKeys(accepts) {
			test := accepts[name]
			for _, request := range []struct{ name, method, path, body, want string }{
				{"GET", http.MethodGet, "/g", "", test.wantType},
				{"LIST", http.MethodGet, "", "", test.wantType},
				{"WATCH", http.MethodGet, "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dg&resourceVersion=" + s.now(), "", test.wantWatch},
				{"POST", http.MethodPost, "?dryRun=All", gadget("x", `{}`), test.wantType},
				{"DELETE", http.MethodDelete, "/g?dryRun=All", "", ""},
			} {
				if request.name == "WATCH" && test.wantWatch == jsonType && name != "JSON" && name != "anything" && !strings.HasPrefix(name, "CBOR") {
					// A watch that is taken costs a second.
					continue
				}
				got := s.do(request.name+" "+name, request.method, s.gadgets()+request.path, request.body, "Accept", test.accept)
				contentType := got.header.Get("Content-Type")
				switch {
				case request.name == "DELETE":
				case request.want == "" && got.code != http.StatusNotAcceptable:
					s.t.Errorf("%s: answered %d as %s, want 406", got.name, got.code, contentType)
				case request.want != "" && (got.code/100 != 2 || !strings.HasPrefix(contentType, request.want)):
					s.t.Errorf("%s: answered %d as %s, want %s", got.name, got.code, contentType, request.want)
				}
				if strings.HasPrefix(contentType, "text/") {
					s.t.Errorf("%s: answered %s", got.name, contentType)
				}
				if got.code == http.StatusNotAcceptable && contentType == jsonType {
					got.wantStatus(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: "+jsonType)
				}
			}
		}
	})
}

// TestContentType reproduces kubernetes/kubernetes 55541, 128497 and 128641: bodies are JSON or
// YAML, anything else is refused with 415.
func TestContentType(t *testing.T) {
	yaml := "apiVersion: lab.annex.test/v1\nkind: Gadget\nmetadata: {name: x}\nspec: {color: red}\n"
	merge := `{"spec":{"color":"red"}}`
	const unsupported = http.StatusUnsupportedMediaType
	cases := map[string]struct {
		method, contentType, body string
		want                      int
	}{
		"POST JSON":                       {http.MethodPost, jsonType, gadget("x", `{}`), 201},
		"POST JSON in UTF-8":              {http.MethodPost, jsonType + "; charset=utf-8", gadget("x", `{}`), 201},
		"POST YAML":                       {http.MethodPost, "application/yaml", yaml, 201},
		"POST JSON called YAML":           {http.MethodPost, "application/yaml", gadget("x", `{}`), 201},
		"POST YAML called JSON":           {http.MethodPost, jsonType, yaml, 400},
		"POST YAML by another name":       {http.MethodPost, "text/yaml", yaml, unsupported},
		"POST without a type":             {http.MethodPost, "-", gadget("x", `{}`), 201},
		"POST CBOR":                       {http.MethodPost, cborType, "\xd9\xd9\xf7\xa0", unsupported},
		"POST text":                       {http.MethodPost, "text/plain", gadget("x", `{}`), unsupported},
		"POST form":                       {http.MethodPost, "application/x-www-form-urlencoded", "a=b", unsupported},
		"POST no form":                    {http.MethodPost, "a/b/c;;", gadget("x", `{}`), unsupported},
		"POST merge patch":                {http.MethodPost, mergePatch, gadget("x", `{}`), unsupported},
		"PUT CBOR":                        {http.MethodPut, cborType, "\xd9\xd9\xf7\xa0", unsupported},
		"PATCH strategic":                 {http.MethodPatch, "application/strategic-merge-patch+json", merge, unsupported},
		"PATCH merge":                     {http.MethodPatch, mergePatch, merge, 200},
		"PATCH merge in UTF-8":            {http.MethodPatch, mergePatch + "; charset=utf-8", merge, 200},
		"PATCH merge in YAML":             {http.MethodPatch, "application/merge-patch+yaml", "spec: {color: red}", unsupported},
		"PATCH apply":                     {http.MethodPatch, applyPatch, strings.Replace(yaml, "name: x", "name: g", 1), 200},
		"PATCH apply in CBOR":             {http.MethodPatch, "application/apply-patch+cbor", "\xd9\xd9\xf7\xa0", unsupported},
		"PATCH apply in JSON":             {http.MethodPatch, "application/apply-patch+json", gadget("g", `{}`), unsupported},
		"PATCH protobuf":                  {http.MethodPatch, protobufType, "k8s\x00\n", unsupported},
		"PATCH with an upper-case letter": {http.MethodPatch, "application/Merge-Patch+json", merge, unsupported},
		"DELETE CBOR":                     {http.MethodDelete, cborType, "\xd9\xd9\xf7\xa1\x46dryRun\x81\x43All", unsupported},
	}
	compare(t, func(s *session) {
		s.do("create", http.MethodPost, s.gadgets(), gadget("g", `{"color":"red"}`)).want(http.StatusCreated)
		for _, name := range sortedKeys(cases) {
			test := cases[name]
			path := s.gadgets() + "/g"
			if test.method == http.MethodPost {
				path = s.gadgets()
			}
			got := s.do(name, test.method, path+"?dryRun=All&fieldManager=m&"+forceOf(test.contentType), test.body, "Content-Type", test.contentType)
			if got.code != test.want {
				s.t.Errorf("%s: answered %d, want %d: %.300s", name, got.code, test.want, got.body)
			}
			if got.code == unsupported {
				got.wantStatus(unsupported, metav1.StatusReasonUnsupportedMediaType)
			}
			// The type of the answer is for Accept to say.
			got = s.do(name+" for YAML", test.method, path+"?dryRun=All&fieldManager=m&"+forceOf(test.contentType), test.body, "Content-Type", test.contentType, "Accept", "application/yaml")
			if contentType := got.header.Get("Content-Type"); contentType != "application/yaml" {
				s.t.Errorf("%s: answered in %s", got.name, contentType)
			}
		}
		s.do("compressed answer", http.MethodGet, s.gadgets()+"/g", "", "Accept-Encoding", "gzip").want(http.StatusOK)
		s.do("compressed body", http.MethodPost, s.gadgets()+"?dryRun=All", gadget("x", `{}`), "Content-Encoding", "gzip")
		s.do("g is left", http.MethodGet, s.gadgets()+"/g", "").want(http.StatusOK)
	})
}

// forceOf is a parameter that only an apply may have.
func forceOf(contentType string) string {
	if contentType == applyPatch {
		return "force=true"
	}
	return ""
}

// TestMetadataInProtobuf reproduces kubernetes/kubernetes 55541 for clients of metadata only, which
// controllers use: metadata of any kind comes in protobuf.
func TestMetadataInProtobuf(t *testing.T) {
	const accept = protobufType + ";as=%s;v=v1;g=meta.k8s.io"
	compare(t, func(s *session) {
		s.do("create", http.MethodPost, s.gadgets(), gadget("g", `{"color":"red"}`)).want(http.StatusCreated)
		for _, request := range []struct{ as, path string }{
			{"PartialObjectMetadata", "/g"},
			{"PartialObjectMetadataList", ""},
			{"PartialObjectMetadata", "?watch=1&timeoutSeconds=1&resourceVersion=0"},
		} {
			got := s.do("metadata of "+request.path, http.MethodGet, s.gadgets()+request.path, "", "Accept", fmt.Sprintf(accept, request.as)).want(http.StatusOK)
			if contentType := got.header.Get("Content-Type"); !strings.HasPrefix(contentType, protobufType) {
				s.t.Errorf("%s: answered in %s", got.name, contentType)
			}
			if !strings.Contains(string(got.body), "PartialObjectMetadata") || strings.Contains(string(got.body), "red") {
				s.t.Errorf("%s: answered %q", got.name, got.body)
			}
		}
		s.do("a list as one object", http.MethodGet, s.gadgets(), "", "Accept", fmt.Sprintf(accept, "PartialObjectMetadata")).
			wantStatus(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable)
	})
}

// TestProtobufBody reproduces kubernetes/kubernetes 55541 for bodies. Without field validation they
// are refused with 400. With it, which is the default, upstream 1.37.2 has no strict decoder for
// protobuf: the request panics and its stream is reset. The test takes that or a clean 415, and
// demands that the server lives on and writes nothing.
func TestProtobufBody(t *testing.T) {
	body := "k8s\x00\n\x1b\n\x11lab.annex.test/v1\x12\x06Gadget\x12\x00"
	compare(t, func(s *session) {
		s.do("create", http.MethodPost, s.gadgets(), gadget("g", `{"color":"red"}`)).want(http.StatusCreated)
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			path := s.gadgets()
			if method == http.MethodPut {
				path += "/g"
			}
			s.do(method+" without validation", method, path+"?fieldValidation=Ignore", body, "Content-Type", protobufType).
				wantStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest, "cannot be handled as a Gadget")
			answer, err := s.open(s.t.Context(), s.target.api, method, path, body, "Content-Type", protobufType)
			if err != nil {
				s.t.Logf("%s in protobuf: %v", method, err)
				s.steps = append(s.steps, step{Name: method + " with validation", Body: "reset"})
				continue
			}
			outcome := step{Name: method + " with validation", Code: answer.StatusCode}
			if s.target == suite.viaTarget && answer.StatusCode == http.StatusServiceUnavailable {
				outcome = step{Name: outcome.Name, Body: "reset"} // so the aggregator passes it on
			}
			s.steps = append(s.steps, outcome)
			if err := answer.Body.Close(); err != nil {
				s.t.Error(err)
			}
			if answer.StatusCode != http.StatusUnsupportedMediaType && answer.StatusCode < http.StatusInternalServerError {
				s.t.Errorf("%s in protobuf is answered with %s", method, answer.Status)
			}
		}
		s.do("the server lives", http.MethodGet, s.gadgets()+"/g", "").want(http.StatusOK).wantField("red", "spec", "color")
	})
}
