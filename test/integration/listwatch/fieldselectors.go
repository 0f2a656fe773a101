// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeannex/annex/test/env"
)

// badRequest is what a selectorCase wants instead of names when the server has to refuse.
const badRequest = "400 BadRequest"

// selectorCase is a field selector and the names that it has to find, separated
// by blanks.
type selectorCase struct {
	version  string
	selector string
	want     string
}

// selectorCases follow k8s.io/apiextensions-apiserver pkg/apiserver/conversion/converter.go
// (what may be named) and pkg/registry/customresource/strategy.go (what it is compared with).
func selectorCases() map[string]selectorCase {
	return map[string]selectorCase{
		"a string":                              {"v1", `spec.color=red`, "colored"},
		"a string, written with two signs":      {"v1", `spec.color==red`, "colored"},
		"another string":                        {"v1", `spec.color!=red`, "bare blank odd"},
		"absent equals empty":                   {"v1", `spec.color=`, "bare blank"},
		"not empty":                             {"v1", `spec.color!=`, "colored odd"},
		"comma, equals sign and backslash":      {"v1", `spec.color=a\,b\=c\\d`, "odd"},
		"all but comma, equals sign, backslash": {"v1", `spec.color!=a\,b\=c\\d`, "bare blank colored"},
		"a number as text":                      {"v1", `spec.size=3`, "colored"},
		"a number in another spelling":          {"v1", `spec.size=03`, ""},
		"a large number":                        {"v1", `spec.size=1000000`, "blank"},
		"zero":                                  {"v1", `spec.size=0`, "odd"},
		"no number":                             {"v1", `spec.size=`, "bare"},
		"another number":                        {"v1", `spec.size!=3`, "bare blank odd"},
		"true":                                  {"v1", `spec.hot=true`, "colored"},
		"false is not absent":                   {"v1", `spec.hot=false`, "odd"},
		"neither true nor false":                {"v1", `spec.hot=`, "bare blank"},
		"true in another spelling":              {"v1", `spec.hot=True`, ""},
		"two fields":                            {"v1", `spec.size=3,spec.color=red`, "colored"},
		"two fields that exclude each other":    {"v1", `spec.size=3,spec.color!=red`, ""},
		"a field and another name":              {"v1", `spec.color!=red,metadata.name!=odd`, "bare blank"},
		"the name":                              {"v1", `metadata.name=odd`, "odd"},
		"the name and a field":                  {"v1", `metadata.name=odd,spec.size=3`, ""},
		"the namespace of the path":             {"v1", `metadata.namespace=a`, "bare blank colored odd"},
		"a namespace other than the path's":     {"v1", `metadata.namespace=b`, ""},
		"a field of both versions":              {"v1beta1", `spec.color=red`, "colored"},
		"a field of the other version":          {"v1beta1", `spec.size=3`, badRequest},
		"a boolean of the other version":        {"v1beta1", `spec.hot!=true`, badRequest},
		"a field that exists, not selectable":   {"v1", `spec.note=x`, badRequest},
		"a field that does not exist":           {"v1", `spec.other=x`, badRequest},
		"a field of the status":                 {"v1", `status.size=1`, badRequest},
		"a label":                               {"v1", `metadata.labels.team=a`, badRequest},
		"another field of the metadata":         {"v1", `metadata.uid=x`, badRequest},
		"a supported and an unsupported field":  {"v1", `spec.color=red,spec.other=x`, badRequest},
		"no operator":                           {"v1", `spec.color`, badRequest},
		"an operator of label selectors":        {"v1", `spec.color in (red)`, badRequest},
		"an unfinished escape":                  {"v1", `spec.color=a\`, badRequest},
		"an unknown escape":                     {"v1", `spec.color=a\x`, badRequest},
	}
}

// CheckFieldSelectors creates objects with and without selectable fields and
// demands that LIST in all its forms, WATCH and DELETE of a collection find the
// same objects by a field selector, or refuse it in the same way.
func CheckFieldSelectors(t *testing.T, w *World) {
	t.Helper()
	for name, spec := range map[string]map[string]any{
		"colored": {"color": "red", "size": 3, "hot": true},
		"odd":     {"color": `a,b=c\d`, "size": 0, "hot": false, "note": "x"},
		"blank":   {"color": "", "size": 1000000},
		"bare":    {},
	} {
		w.createKnob(t, "a", name, spec)
	}
	var group errgroup.Group
	for name, test := range selectorCases() {
		group.Go(func() error {
			for how, request := range selectorRequests() {
				found, err := w.findNames(t.Context(), test, request)
				if err != nil {
					t.Errorf("%s, %s %s: %v", name, how, test.selector, err)
				} else if diff := cmp.Diff(test.want, found); diff != "" {
					t.Errorf("%s, %s %s (-want +got):\n%s", name, how, test.selector, diff)
				}
			}
			return nil
		})
	}
	group.Wait() //nolint:errcheck // failures are reported above
}

// createKnob creates an object of the resource that has no history, and
// returns when the cache of every version knows it: a consistent list waits for that.
func (w *World) createKnob(t *testing.T, namespace, name string, spec map[string]any) {
	t.Helper()
	err := w.must(t.Context(), http.MethodPost, knobPath("v1", namespace), map[string]any{
		"apiVersion": env.FixtureGroup + "/v1", "kind": "Knob", "metadata": map[string]any{"name": name}, "spec": spec,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		if err := w.must(t.Context(), http.MethodGet, knobPath(version, namespace), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// selectorRequest is one way to ask; parameters are added to the selector.
type selectorRequest struct {
	method     string
	parameters string
}

func selectorRequests() map[string]selectorRequest {
	return map[string]selectorRequest{
		"consistent list":      {http.MethodGet, ""},
		"list from the cache":  {http.MethodGet, "resourceVersion=0"},
		"list in pages":        {http.MethodGet, "limit=1"},
		"watch":                {http.MethodGet, "watch=true&resourceVersion=0&timeoutSeconds=1"},
		"delete of collection": {http.MethodDelete, "dryRun=All"},
	}
}

// findNames returns the names that a request finds, in order and separated by
// blanks, or badRequest.
func (w *World) findNames(ctx context.Context, test selectorCase, request selectorRequest) (string, error) {
	var names []string
	next := ""
	for {
		path := knobPath(test.version, "a") + "?" + request.parameters +
			"&continue=" + next + "&fieldSelector=" + url.QueryEscape(test.selector)
		if next == "" {
			path = strings.Replace(path, "&continue=", "", 1)
		}
		got, err := w.do(ctx, request.method, path, nil)
		if err != nil {
			return "", err
		}
		if got.code != http.StatusOK {
			var status metav1.Status
			err := json.Unmarshal(got.body, &status)
			return fmt.Sprintf("%d %s", status.Code, status.Reason), err
		}
		if strings.HasPrefix(request.parameters, "watch") {
			return addedNames(got.body)
		}
		var page itemList
		if err := json.Unmarshal(got.body, &page); err != nil {
			return "", fmt.Errorf("decoding %s: %w", got.body, err)
		}
		for _, i := range page.Items {
			names = append(names, i.Metadata.Name)
		}
		if next = page.Metadata.Continue; next == "" {
			return strings.Join(names, " "), nil
		}
	}
}

func addedNames(stream []byte) (string, error) {
	all, err := frames(stream)
	if err != nil {
		return "", err
	}
	var names []string
	for _, f := range all {
		var i item
		if err := json.Unmarshal(f.Object, &i); err != nil {
			return "", err
		}
		if f.Type != "ADDED" {
			return "", fmt.Errorf("unexpected event %s %s", f.Type, f.Object)
		}
		names = append(names, i.Metadata.Name)
	}
	return strings.Join(names, " "), nil
}
