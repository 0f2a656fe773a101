// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// malformed is a request and its right answer. The path is below the gadgets of
// the namespace, which has the gadget "base".
type malformed struct {
	method, path, body string
	header             []string
	// code and reason are of the answer; without a reason it is no Status.
	code   int
	reason metav1.StatusReason
	// message is part of the message, or of the body when there is no Status.
	message string
	// warning is part of a Warning header.
	warning string
}

func runMalformed(t *testing.T, cases map[string]malformed) {
	t.Helper()
	compare(t, func(s *session) {
		s.do("create base", http.MethodPost, s.gadgets(), gadget("base", `{"color":"red","size":1}`)).want(http.StatusCreated)
		before := s.now()
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			test := cases[name]
			method := test.method
			if method == "" {
				method = http.MethodPost
			}
			path := s.gadgets() + test.path
			if strings.HasPrefix(test.path, "/apis/") {
				path = test.path
			}
			got := s.do(name, method, path, test.body, test.header...)
			test.check(got)
		}
		for _, written := range s.eventsSince("what was written", before) {
			s.t.Errorf("a refused or dry request made the event %s: %s", written.Type, written.Object)
		}
	})
}

func (m malformed) check(got *response) {
	got.t.Helper()
	if warning := strings.Join(got.header.Values("Warning"), " "); !strings.Contains(warning, m.warning) || (m.warning == "" && warning != "") {
		got.t.Errorf("%s: warning is %q, want %q", got.name, warning, m.warning)
	}
	if m.reason != "" {
		got.wantStatus(m.code, m.reason, m.message)
		return
	}
	if got.code != m.code || !strings.Contains(string(got.body), m.message) {
		got.t.Errorf("%s: answered %d, want %d with %q: %.800s", got.name, got.code, m.code, m.message, got.body)
	}
}

// TestMalformedBodies sends bodies that are no object, or the wrong one.
func TestMalformedBodies(t *testing.T) {
	const bad, yamlType = metav1.StatusReasonBadRequest, "application/yaml"
	long := strings.Repeat("x", 254)
	runMalformed(t, map[string]malformed{
		"no body":               {code: 400, reason: bad},
		"no JSON":               {body: `color: red`, code: 400, reason: bad},
		"truncated JSON":        {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"x"`, code: 400, reason: bad},
		"text after the object": {body: gadget("x", `{}`) + " x", code: 400, reason: bad},
		"two objects":           {body: gadget("x", `{}`) + gadget("y", `{}`), code: 400, reason: bad},
		"null":                  {body: `null`, code: 400, reason: bad},
		"array":                 {body: `[]`, code: 400, reason: bad},
		"string":                {body: `"gadget"`, code: 400, reason: bad},
		"invalid YAML":          {body: "apiVersion: lab.annex.test/v1\n\tkind: Gadget", header: []string{"Content-Type", yamlType}, code: 400, reason: bad},
		"unclosed YAML":         {body: "{apiVersion: lab.annex.test/v1, kind: Gadget", header: []string{"Content-Type", yamlType}, code: 400, reason: bad},
		"YAML bomb": {
			body:   "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n",
			header: []string{"Content-Type", yamlType}, code: 400, reason: bad,
		},
		"no kind":               {body: `{"apiVersion":"lab.annex.test/v1","metadata":{"name":"x"}}`, code: 400, reason: bad},
		"no apiVersion":         {body: `{"kind":"Gadget","metadata":{"name":"x"}}`, code: 400, reason: bad},
		"another kind":          {body: object("Planet", "x", `{}`), code: 422, reason: metav1.StatusReasonInvalid, message: "must be Gadget"},
		"another version":       {body: `{"apiVersion":"lab.annex.test/v1beta1","kind":"Gadget","metadata":{"name":"x"}}`, code: 400, reason: bad},
		"another group":         {body: `{"apiVersion":"other.test/v1","kind":"Gadget","metadata":{"name":"x"}}`, code: 400, reason: bad},
		"apiVersion of no form": {body: `{"apiVersion":"a/b/c","kind":"Gadget","metadata":{"name":"x"}}`, code: 400, reason: bad},
		"kind of a number":      {body: `{"apiVersion":"lab.annex.test/v1","kind":1,"metadata":{"name":"x"}}`, code: 400, reason: bad},
		"a list of the kind":    {body: `{"apiVersion":"lab.annex.test/v1","kind":"GadgetList","items":[]}`, code: 422, reason: metav1.StatusReasonInvalid, message: "must be Gadget"},
		"another namespace":     {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"x","namespace":"default"}}`, code: 400, reason: bad, message: "does not match the namespace"},
		"no name":               {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{}}`, code: 422, reason: metav1.StatusReasonInvalid, message: "name or generateName is required"},
		"no metadata":           {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget"}`, code: 422, reason: metav1.StatusReasonInvalid, message: "name or generateName is required"},
		"metadata of a string":  {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":"x"}`, code: 400, reason: bad},
		"labels of a list":      {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"x","labels":[]}}`, code: 400, reason: bad},
		"labels of numbers":     {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"x","labels":{"a":1}}}`, code: 400, reason: bad},
		"label too long":        {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"x","labels":{"a":"` + long + `"}}}`, code: 422, reason: metav1.StatusReasonInvalid, message: "metadata.labels"},
		"owner without UID":     {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p"}]}}`, code: 422, reason: metav1.StatusReasonInvalid, message: "metadata.ownerReferences"},
		"finalizer of no form":  {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"x","finalizers":["Not A Name"]}}`, code: 422, reason: metav1.StatusReasonInvalid, message: "metadata.finalizers"},
		"resourceVersion set":   {body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"x","resourceVersion":"7"}}`, code: 500, message: "resourceVersion should not be set on objects to be created"},
		"spec of a wrong type":  {body: gadget("x", `{"size":"big"}`), code: 422, reason: metav1.StatusReasonInvalid, message: "spec.size"},
		"spec null":             {body: gadget("x", `null`), path: "?dryRun=All", code: 201},
		"name taken":            {body: gadget("base", `{}`), code: 409, reason: metav1.StatusReasonAlreadyExists},
		"create with a name":    {path: "/base", body: gadget("base", `{}`), code: 409, reason: metav1.StatusReasonAlreadyExists},
		"deep nesting":          {body: gadget("x", `{"color":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`}`), code: 400, reason: bad},
		"deep nesting pruned":   {path: "?dryRun=All&fieldValidation=Ignore", body: gadget("x", `{"x":`+strings.Repeat(`{"a":`, 5000)+"1"+strings.Repeat("}", 5000)+`}`), code: 201},
		"PUT another name":      {method: http.MethodPut, path: "/base", body: gadget("other", `{}`), code: 400, reason: bad, message: "does not match the name"},
		"PUT no name":           {method: http.MethodPut, path: "/base", body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{}}`, code: 400, reason: bad},
		"PUT another UID":       {method: http.MethodPut, path: "/base", body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"base","uid":"7","resourceVersion":"1"}}`, code: 409, reason: metav1.StatusReasonConflict},
		"PUT without version":   {method: http.MethodPut, path: "/base", body: gadget("base", `{}`), code: 422, reason: metav1.StatusReasonInvalid, message: "metadata.resourceVersion"},
		"PUT version of text":   {method: http.MethodPut, path: "/base", body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"base","resourceVersion":"new"}}`, code: 500, message: "invalid syntax"},
		"PUT stale version":     {method: http.MethodPut, path: "/base", body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"base","resourceVersion":"1"}}`, code: 409, reason: metav1.StatusReasonConflict},
		"PUT to nothing":        {method: http.MethodPut, path: "/absent", body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"absent","resourceVersion":"1"}}`, code: 404, reason: metav1.StatusReasonNotFound},
	})
}

// TestOversizeBodies sends more than a request may hold: the limit is 3 MiB.
func TestOversizeBodies(t *testing.T) {
	const limit = 3 << 20
	big := func(size int) string {
		empty := gadget("x", `{"note":""}`)
		return strings.TrimSuffix(empty, `"}}`) + strings.Repeat("n", size-len(empty)) + `"}}`
	}
	tooLarge := metav1.StatusReasonRequestEntityTooLarge
	patch := `{"spec":{"note":"` + strings.Repeat("n", limit) + `"}}`
	runMalformed(t, map[string]malformed{
		"POST of the limit": {path: "?dryRun=All", body: big(limit), code: 201},
		"POST of one more":  {path: "?dryRun=All", body: big(limit + 1), code: 413, reason: tooLarge, message: "limit is 3145728"},
		"PUT of one more":   {method: http.MethodPut, path: "/base", body: big(limit + 1), code: 413, reason: tooLarge},
		"PATCH too large":   {method: http.MethodPatch, path: "/base", body: patch, header: []string{"Content-Type", mergePatch}, code: 413, reason: tooLarge},
		"DELETE too large":  {method: http.MethodDelete, path: "/base", body: patch, code: 413, reason: tooLarge},
	})
}

// TestFieldValidation sends unknown and duplicate fields at every level of fieldValidation.
func TestFieldValidation(t *testing.T) {
	const bad = metav1.StatusReasonBadRequest
	unknown := gadget("x", `{"color":"red","colour":"red","size":1}`)
	duplicate := gadget("x", `{"color":"red","color":"blue"}`)
	unknownMeta := `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"x","nick":"y"},"extra":1}`
	yaml := []string{"Content-Type", "application/yaml"}
	merge := []string{"Content-Type", mergePatch}
	apply := []string{"Content-Type", applyPatch}
	runMalformed(t, map[string]malformed{
		"unknown by default":        {path: "?dryRun=All", body: unknown, code: 201, warning: `unknown field \"spec.colour\"`},
		"unknown, Ignore":           {path: "?dryRun=All&fieldValidation=Ignore", body: unknown, code: 201},
		"unknown, Warn":             {path: "?dryRun=All&fieldValidation=Warn", body: unknown, code: 201, warning: `unknown field \"spec.colour\"`},
		"unknown, Strict":           {path: "?dryRun=All&fieldValidation=Strict", body: unknown, code: 400, reason: bad, message: `strict decoding error: unknown field "spec.colour"`},
		"duplicate by default":      {path: "?dryRun=All", body: duplicate, code: 201, warning: `duplicate field \"spec.color\"`},
		"duplicate, Ignore":         {path: "?dryRun=All&fieldValidation=Ignore", body: duplicate, code: 201},
		"duplicate, Strict":         {path: "?dryRun=All&fieldValidation=Strict", body: duplicate, code: 400, reason: bad, message: `duplicate field "spec.color"`},
		"duplicate in YAML, Strict": {path: "?dryRun=All&fieldValidation=Strict", header: yaml, body: "apiVersion: lab.annex.test/v1\nkind: Gadget\nmetadata: {name: x}\nspec:\n  color: red\n  color: blue\n", code: 400, reason: bad},
		"in metadata, Strict":       {path: "?dryRun=All&fieldValidation=Strict", body: unknownMeta, code: 400, reason: bad, message: `unknown field "metadata.nick"`},
		"in metadata, Warn":         {path: "?dryRun=All&fieldValidation=Warn", body: unknownMeta, code: 201, warning: `unknown field \"extra\"`},
		"of no such level":          {path: "?dryRun=All&fieldValidation=strict", body: unknown, code: 422, reason: metav1.StatusReasonInvalid, message: "fieldValidation"},
		"PATCH unknown, Strict":     {method: http.MethodPatch, path: "/base?dryRun=All&fieldValidation=Strict", header: merge, body: `{"spec":{"colour":"red"}}`, code: 422, reason: metav1.StatusReasonInvalid},
		"PATCH unknown, Warn":       {method: http.MethodPatch, path: "/base?dryRun=All&fieldValidation=Warn", header: merge, body: `{"spec":{"colour":"red"}}`, code: 200, warning: `unknown field \"spec.colour\"`},
		"PATCH duplicate, Strict":   {method: http.MethodPatch, path: "/base?dryRun=All&fieldValidation=Strict", header: merge, body: `{"spec":{"color":"red","color":"blue"}}`, code: 422, reason: metav1.StatusReasonInvalid},
		"apply unknown":             {method: http.MethodPatch, path: "/base?dryRun=All&fieldManager=m", header: apply, body: gadget("base", `{"colour":"red"}`), code: 500, message: ".spec.colour: field not declared in schema"},
		"apply unknown to a new":    {method: http.MethodPatch, path: "/x?dryRun=All&fieldManager=m", header: apply, body: unknown, code: 500, message: ".spec.colour: field not declared in schema"},
		"apply duplicate, Strict":   {method: http.MethodPatch, path: "/x?dryRun=All&fieldManager=m&fieldValidation=Strict", header: apply, body: duplicate, code: 400, reason: bad},
	})
}

// TestMalformedPatches sends patches of wrong types and forms.
func TestMalformedPatches(t *testing.T) {
	const bad, unsupported, invalid = metav1.StatusReasonBadRequest, metav1.StatusReasonUnsupportedMediaType, metav1.StatusReasonInvalid
	typed := func(contentType string) []string { return []string{"Content-Type", contentType} }
	cases := map[string]malformed{
		"strategic merge":            {body: `{"spec":{"color":"x"}}`, header: typed("application/strategic-merge-patch+json"), code: 415, reason: unsupported, message: applyPatch},
		"plain JSON":                 {body: `{"spec":{"color":"x"}}`, header: typed(jsonType), code: 415, reason: unsupported},
		"no type":                    {body: `{"spec":{"color":"x"}}`, header: typed("-"), code: 415, reason: unsupported},
		"type of no form":            {body: `{}`, header: typed("a/b/c;;"), code: 415, reason: unsupported},
		"merge of no JSON":           {body: `{"spec":`, header: typed(mergePatch), code: 400, reason: bad},
		"merge of a list":            {body: `[]`, header: typed(mergePatch), code: 400, reason: bad},
		"merge of a wrong type":      {body: `{"spec":{"size":"big"}}`, header: typed(mergePatch), code: 422, reason: invalid},
		"merge of another name":      {body: `{"metadata":{"name":"other"}}`, header: typed(mergePatch), code: 400, reason: bad},
		"merge of another kind":      {body: `{"kind":"Planet"}`, header: typed(mergePatch), code: 422, reason: invalid, message: "must be Gadget"},
		"merge of another UID":       {body: `{"metadata":{"uid":"7"}}`, header: typed(mergePatch), code: 422, reason: invalid, message: "metadata.uid"},
		"merge of a stale version":   {body: `{"metadata":{"resourceVersion":"1"}}`, header: typed(mergePatch), code: 409, reason: metav1.StatusReasonConflict},
		"merge of empty":             {body: `{}`, header: typed(mergePatch), code: 200},
		"merge without body":         {header: typed(mergePatch), code: 400, reason: bad},
		"JSON patch of an object":    {body: `{}`, header: typed(jsonPatch), code: 400, reason: bad},
		"JSON patch of no such op":   {body: `[{"op":"paint","path":"/spec/color"}]`, header: typed(jsonPatch), code: 422, reason: invalid},
		"JSON patch that fails test": {body: `[{"op":"test","path":"/spec/color","value":"blue"}]`, header: typed(jsonPatch), code: 422, reason: invalid},
		"JSON patch to no path":      {body: `[{"op":"replace","path":"/spec/absent/x","value":1}]`, header: typed(jsonPatch), code: 422, reason: invalid},
		"JSON patch without a path":  {body: `[{"op":"remove"}]`, header: typed(jsonPatch), code: 422, reason: invalid},
		"JSON patch of no JSON":      {body: `[{"op":`, header: typed(jsonPatch), code: 400, reason: bad},
		"JSON patch of the whole":    {body: `[{"op":"replace","path":"","value":1}]`, header: typed(jsonPatch), code: 422, reason: invalid},
		"JSON patch too long": {
			body:   "[" + strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"/spec/size","value":1},`, 10001), ",") + "]",
			header: typed(jsonPatch), code: 413, reason: metav1.StatusReasonRequestEntityTooLarge,
		},
		"apply without manager":     {body: gadget("base", `{}`), header: typed(applyPatch), code: 422, reason: invalid, message: "fieldManager"},
		"apply of another name":     {path: "?fieldManager=m", body: gadget("other", `{}`), header: typed(applyPatch), code: 400, reason: bad},
		"apply of no kind":          {path: "?fieldManager=m", body: `{"metadata":{"name":"base"}}`, header: typed(applyPatch), code: 400, reason: bad},
		"apply of no YAML":          {path: "?fieldManager=m", body: "a: [", header: typed(applyPatch), code: 400, reason: bad},
		"apply with managed fields": {path: "?fieldManager=m", body: `{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":"base","managedFields":[{}]}}`, header: typed(applyPatch), code: 400, reason: bad, message: "managedFields must be nil"},
		"apply against another":     {path: "?fieldManager=m", body: gadget("base", `{"color":"blue"}`), header: typed(applyPatch), code: 409, reason: metav1.StatusReasonConflict, message: "conflict"},
		"apply in CBOR":             {path: "?fieldManager=m", body: "\xd9\xd9\xf7\xa0", header: typed("application/apply-patch+cbor"), code: 415, reason: unsupported},
		"force of a merge":          {path: "?force=true", body: `{}`, header: typed(mergePatch), code: 422, reason: invalid, message: "force"},
		"manager with a line break": {path: "?fieldManager=a%0Ab", body: `{}`, header: typed(mergePatch), code: 422, reason: invalid},
		"manager too long":          {path: "?fieldManager=" + strings.Repeat("m", 129), body: `{}`, header: typed(mergePatch), code: 422, reason: invalid},
		"merge of nothing there":    {path: "/absent", body: `{}`, header: typed(mergePatch), code: 404, reason: metav1.StatusReasonNotFound},
		"JSON patch of nothing":     {path: "/absent", body: `[]`, header: typed(jsonPatch), code: 404, reason: metav1.StatusReasonNotFound},
	}
	for name, test := range cases {
		test.method = http.MethodPatch
		if !strings.HasPrefix(test.path, "/") {
			test.path = "/base" + test.path
		}
		cases[name] = test
	}
	runMalformed(t, cases)
}
