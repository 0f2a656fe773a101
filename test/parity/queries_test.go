// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMalformedQueries sends query parameters that do not exist or mean nothing.
func TestMalformedQueries(t *testing.T) {
	const bad, invalid, get = metav1.StatusReasonBadRequest, metav1.StatusReasonInvalid, http.MethodGet
	label := func(selector string) string { return "?labelSelector=" + url.QueryEscape(selector) }
	field := func(selector string) string { return "?fieldSelector=" + url.QueryEscape(selector) }
	const patchless, merge = http.MethodPost, mergePatch
	runMalformed(t, map[string]malformed{
		"unknown parameter":           {method: get, path: "?colour=red", code: 200},
		"pretty of no meaning":        {method: get, path: "/base?pretty=maybe", code: 200},
		"label selector of no form":   {method: get, path: label("a=b=c"), code: 400, reason: bad, message: "expected: ',' or 'end of string'"},
		"label selector unclosed":     {method: get, path: label("a in (b"), code: 400, reason: bad},
		"label selector key":          {method: get, path: label("a b"), code: 400, reason: bad},
		"label selector value":        {method: get, path: label("a=" + strings.Repeat("v", 64)), code: 400, reason: bad},
		"label selector operator":     {method: get, path: label("a>b"), code: 400, reason: bad},
		"field selector of no form":   {method: get, path: field("color"), code: 400, reason: bad, message: "invalid selector"},
		"field selector escape":       {method: get, path: field(`spec.color=a\b`), code: 400, reason: bad},
		"field selector unknown":      {method: get, path: field("spec.other=x"), code: 400, reason: bad, message: "field label not supported"},
		"limit of text":               {method: get, path: "?limit=many", code: 400, reason: bad},
		"limit below zero":            {method: get, path: "?limit=-1", code: 200},
		"limit too large":             {method: get, path: "?limit=99999999999999999999", code: 400, reason: bad},
		"continue of no form":         {method: get, path: "?continue=next", code: 400, reason: bad, message: "continue key is not valid"},
		"continue of another version": {method: get, path: "?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjkiLCJydiI6NSwic3RhcnQiOiJ4In0", code: 400, reason: bad},
		"continue with a way out":     {method: get, path: "?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIvLi4vLi4veCJ9", code: 400, reason: bad},
		"continue and version":        {method: get, path: "?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoieFx1MDAwMCJ9&resourceVersion=5", code: 400, reason: bad},
		"version of text":             {method: get, path: "?resourceVersion=new", code: 400, reason: bad, message: "resourceVersion"},
		"version below zero":          {method: get, path: "?resourceVersion=-1", code: 400, reason: bad},
		"version with a blank":        {method: get, path: "?resourceVersion=%205", code: 400, reason: bad},
		"version too large a number":  {method: get, path: "?resourceVersion=99999999999999999999", code: 400, reason: bad},
		"version of text, GET":        {method: get, path: "/base?resourceVersion=new", code: 500, message: "invalid syntax"},
		"version of text, watch":      {method: get, path: "?watch=1&resourceVersion=new&timeoutSeconds=1", code: 500, message: "invalid syntax"},
		"match without version":       {method: get, path: "?resourceVersionMatch=Exact", code: 422, reason: invalid, message: "resourceVersionMatch"},
		"match of no meaning":         {method: get, path: "?resourceVersionMatch=Newest&resourceVersion=5", code: 422, reason: invalid},
		"exact zero":                  {method: get, path: "?resourceVersionMatch=Exact&resourceVersion=0", code: 422, reason: invalid},
		"match in a watch":            {method: get, path: "?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=5&timeoutSeconds=1", code: 422, reason: invalid},
		"initial events, no match":    {method: get, path: "?watch=1&sendInitialEvents=true&timeoutSeconds=1", code: 422, reason: invalid},
		"initial events, no watch":    {method: get, path: "?sendInitialEvents=true", code: 422, reason: invalid},
		"initial events of text":      {method: get, path: "?watch=1&sendInitialEvents=maybe&timeoutSeconds=1", code: 422, reason: invalid},
		"timeout of text":             {method: get, path: "?watch=1&timeoutSeconds=soon", code: 400, reason: bad},
		"watch of text":               {method: get, path: "?watch=maybe&timeoutSeconds=1", code: 200},
		"dry run of one":              {method: patchless, path: "?dryRun=true", body: gadget("x", `{}`), code: 422, reason: invalid, message: "dryRun"},
		"dry run of two":              {method: patchless, path: "?dryRun=All&dryRun=Some", body: gadget("x", `{}`), code: 422, reason: invalid},
		"dry run of PATCH":            {method: http.MethodPatch, path: "/base?dryRun=all", body: `{}`, header: []string{"Content-Type", merge}, code: 422, reason: invalid},
		"dry run of DELETE":           {method: http.MethodDelete, path: "/base?dryRun=no", code: 422, reason: invalid},
		"manager with a line break":   {method: patchless, path: "?fieldManager=a%0Ab", body: gadget("x", `{}`), code: 422, reason: invalid},
		"query of no form":            {method: get, path: "?limit=%zz", code: 200},
	})
}

// TestMalformedDeletes sends delete options of wrong forms. With a body the
// options in the query count for nothing, so dry runs are asked for in the body.
func TestMalformedDeletes(t *testing.T) {
	const bad, invalid, conflict = metav1.StatusReasonBadRequest, metav1.StatusReasonInvalid, metav1.StatusReasonConflict
	cases := map[string]malformed{
		"policy of no meaning":        {path: "/base?propagationPolicy=Soon", code: 422, reason: invalid, message: "propagationPolicy"},
		"policy in the body":          {path: "/base", body: `{"propagationPolicy":"Soon"}`, code: 422, reason: invalid, message: "propagationPolicy"},
		"policy and orphan":           {path: "/base?propagationPolicy=Orphan&orphanDependents=true", code: 422, reason: invalid},
		"orphan of text":              {path: "/base?orphanDependents=maybe&dryRun=All", code: 200},
		"grace of text":               {path: "/base?gracePeriodSeconds=long", code: 400, reason: bad},
		"grace below zero":            {path: "/base?gracePeriodSeconds=-1&dryRun=All", code: 200},
		"body of no JSON":             {path: "/base", body: `{"kind":`, code: 400, reason: bad},
		"body of a list":              {path: "/base", body: `[]`, code: 400, reason: bad},
		"body of another kind":        {path: "/base", body: gadget("base", `{}`), code: 400, reason: bad},
		"body of an unknown version":  {path: "/base", body: `{"apiVersion":"v9","kind":"DeleteOptions","dryRun":["All"]}`, code: 200},
		"body in protobuf":            {path: "/base", body: "k8s\x00\n\x13\n\x02v1\x12\rDeleteOptions\x12\x05\x2a\x03All", header: []string{"Content-Type", "application/vnd.kubernetes.protobuf"}, code: 200},
		"body of an unknown type":     {path: "/base", body: `{}`, header: []string{"Content-Type", "text/plain"}, code: 415, reason: metav1.StatusReasonUnsupportedMediaType},
		"body in the group":           {path: "/base", body: `{"apiVersion":"lab.annex.test/v1","kind":"DeleteOptions","dryRun":["All"]}`, code: 200},
		"another UID":                 {path: "/base", body: `{"preconditions":{"uid":"7"}}`, code: 409, reason: conflict, message: "the UID in the precondition"},
		"another version":             {path: "/base", body: `{"preconditions":{"resourceVersion":"1"}}`, code: 409, reason: conflict},
		"dry run in body":             {path: "/base", body: `{"dryRun":["some"]}`, code: 422, reason: invalid},
		"unsafe without meaning":      {path: "/base?ignoreStoreReadErrorWithClusterBreakingPotential=true&gracePeriodSeconds=1", code: 422, reason: invalid},
		"unsafe of a sound object":    {path: "/base?ignoreStoreReadErrorWithClusterBreakingPotential=true", code: 409, reason: conflict, message: "the object is decodable from storage"},
		"nothing there":               {path: "/absent", code: 404, reason: metav1.StatusReasonNotFound},
		"collection by bad selector":  {path: "?labelSelector=a=b=c", code: 400, reason: bad},
		"collection by unknown field": {path: "?fieldSelector=spec.other%3Dx", code: 400, reason: bad},
		"collection of bad options":   {path: "?dryRun=no", code: 422, reason: invalid},
		"collection of bad body":      {path: "", body: `{"kind":`, code: 400, reason: bad},
		"collection, unsafe":          {path: "?ignoreStoreReadErrorWithClusterBreakingPotential=true", code: 422, reason: invalid},
	}
	for name, test := range cases {
		test.method = http.MethodDelete
		cases[name] = test
	}
	runMalformed(t, cases)
}

// TestMalformedTargets sends requests to resources, names, subresources and methods that do not exist.
func TestMalformedTargets(t *testing.T) {
	const missing, get, method = metav1.StatusReasonNotFound, http.MethodGet, metav1.StatusReasonMethodNotAllowed
	const noObject, base = "404 page not found", fixturePath
	runMalformed(t, map[string]malformed{
		"unknown resource":        {method: get, path: base + "/namespaces/default/gizmos", code: 404, message: noObject},
		"unknown version":         {method: get, path: strings.Replace(base, "/v1", "/v9", 1) + "/namespaces/default/gadgets", code: 404, message: noObject},
		"kind in place of plural": {method: get, path: base + "/namespaces/default/gadget", code: 404, message: noObject},
		"unknown subresource":     {method: get, path: "/base/paint", code: 404, reason: missing},
		// Upstream looks at three parts of the path and at no more.
		"below a subresource":      {method: get, path: "/base/status/more", code: 200, message: `"name":"base"`},
		"subresource of a planet":  {method: get, path: base + "/planets/earth/status", code: 404, reason: missing},
		"planet in a namespace":    {method: get, path: base + "/namespaces/default/planets", code: 404, message: noObject},
		"create without namespace": {method: http.MethodPost, path: base + "/gadgets", body: gadget("x", `{}`), code: 404, message: noObject},
		"create a status":          {method: http.MethodPost, path: "/base/status", body: gadget("base", `{}`), code: 405, reason: method},
		"delete a status":          {method: http.MethodDelete, path: "/base/status", code: 405, reason: method},
		"delete a scale":           {method: http.MethodDelete, path: "/base/scale", code: 405, reason: method},
		"PUT of a collection":      {method: http.MethodPut, path: "", body: gadget("x", `{}`), code: 400, reason: metav1.StatusReasonBadRequest, message: "name must be provided"},
		"PATCH of a collection":    {method: http.MethodPatch, path: "", body: `{}`, header: []string{"Content-Type", mergePatch}, code: 400, reason: metav1.StatusReasonBadRequest, message: "name must be provided"},
		"unknown method":           {method: "PAINT", path: "/base", code: 405, reason: method},
		"OPTIONS":                  {method: http.MethodOptions, path: "/base", code: 405, reason: method},
		"TRACE":                    {method: http.MethodTrace, path: "/base", code: 405, reason: method},
		"HEAD":                     {method: http.MethodHead, path: "/base", code: 200},
		"name of two dots":         {method: get, path: "/%2e%2e", code: 400, reason: metav1.StatusReasonBadRequest, message: "may not be '..'"},
		"name with a slash":        {method: get, path: "/ba%2Fse", code: 404, reason: missing},
		"name with a percent":      {method: get, path: "/ba%25se", code: 400, reason: metav1.StatusReasonBadRequest, message: "may not contain '%'"},
		"name in upper case":       {method: get, path: "/BASE", code: 404, reason: missing},
		"slash at the end":         {method: get, path: "/", code: 200, message: `"kind":"GadgetList"`},
		"create in no namespace":   {method: http.MethodPost, path: base + "/namespaces/no-such/gadgets", body: gadget("x", `{}`), code: 404, reason: missing, message: `namespaces "no-such" not found`},
		"the old way to watch":     {method: get, path: strings.Replace(base, "/v1", "/v1/watch", 1) + "/namespaces/default/gadgets?timeoutSeconds=1", code: 200},
		"proxy prefix":             {method: get, path: strings.Replace(base, "/v1", "/v1/proxy", 1) + "/namespaces/default/gadgets", code: 405, reason: method, message: "proxy is not supported"},
	})
}
