// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func rawToken(content string) string { return base64.RawURLEncoding.EncodeToString([]byte(content)) }

// malformedCases are parameters that no client should send, and what comes
// back, with kube-apiserver's oddities: a storage error that nobody translates
// is a 500, and any text but "false" and "0" is a true boolean.
func malformedCases() map[string]struct{ path, want string } {
	const object, all = "namespaces/a/gadgets/beta?", "gadgets?"
	badToken := func(content string) string { return all + "continue=" + rawToken(content) }
	return map[string]struct{ path, want string }{
		"GET, resourceVersion not a number":          {object + "resourceVersion=x", "500 "},
		"LIST, resourceVersion not a number":         {all + "resourceVersion=x", "400 BadRequest"},
		"LIST, resourceVersion negative":             {all + "resourceVersion=-1", "400 BadRequest"},
		"LIST, resourceVersion not a number, Exact":  {all + "resourceVersion=x&resourceVersionMatch=Exact", "400 BadRequest"},
		"WATCH, resourceVersion not a number":        {all + "watch=1&resourceVersion=x", "500 "},
		"LIST, resourceVersionMatch unknown":         {all + "resourceVersion=1&resourceVersionMatch=Newer", "422 Invalid"},
		"LIST, limit not a number":                   {all + "limit=x", "400 BadRequest"},
		"LIST, limit negative":                       {all + "limit=-1", "200 "},
		"LIST, sendInitialEvents not a boolean":      {all + "sendInitialEvents=maybe", "422 Invalid"},
		"LIST, label selector without a meaning":     {all + "labelSelector=%21%21", "400 BadRequest"},
		"LIST, token not base64":                     {all + "continue=%25%25", "400 BadRequest"},
		"LIST, token not JSON":                       {badToken("x"), "400 BadRequest"},
		"LIST, token of another version":             {badToken(`{"v":"v2","rv":1,"start":"a"}`), "400 BadRequest"},
		"LIST, token without a revision":             {badToken(`{"v":"meta.k8s.io/v1","start":"a"}`), "400 BadRequest"},
		"LIST, token without a key":                  {badToken(`{"v":"meta.k8s.io/v1","rv":-1}`), "400 BadRequest"},
		"LIST, token that leaves the resource":       {badToken(`{"v":"meta.k8s.io/v1","rv":-1,"start":"../knobs/a"}`), "400 BadRequest"},
		"LIST, token that leaves it from the inside": {badToken(`{"v":"meta.k8s.io/v1","rv":-1,"start":"a/../../knobs/a"}`), "400 BadRequest"},
	}
}

// CheckMalformed sends parameters that make no sense.
func CheckMalformed(t *testing.T, w *World) {
	t.Helper()
	for name, test := range malformedCases() {
		got, err := w.do(t.Context(), http.MethodGet, "/apis/lab.annex.test/v1/"+test.path, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var status metav1.Status
		if err := json.Unmarshal(got.body, &status); err != nil {
			t.Errorf("%s: decoding %s: %v", name, got.body, err)
		}
		if diff := cmp.Diff(test.want, fmt.Sprintf("%d %s", got.code, status.Reason)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, got.body, diff)
		}
	}
}
