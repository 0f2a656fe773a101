// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listForm is one representation of a list and of the events of a watch.
type listForm struct {
	accept      string
	watchAccept string
	// kind, apiVersion and entries are what the list is called and where its entries are.
	kind, apiVersion string
	entries          string
	eventKind        string
	// empty is what stands for no entries.
	empty string
}

func listForms(version string) map[string]listForm {
	return map[string]listForm{
		"plain": {
			accept: "application/json", watchAccept: "application/json",
			kind: "KnobList", apiVersion: "lab.annex.test/" + version, entries: "items", eventKind: "Knob", empty: "[]",
		},
		"table": {
			accept:      "application/json;as=Table;v=v1;g=meta.k8s.io",
			watchAccept: "application/json;as=Table;v=v1;g=meta.k8s.io",
			kind:        "Table", apiVersion: "meta.k8s.io/v1", entries: "rows", eventKind: "Table", empty: "[]",
		},
		"metadata": {
			accept:      "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
			watchAccept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
			kind:        "PartialObjectMetadataList", apiVersion: "meta.k8s.io/v1", entries: "items", eventKind: "PartialObjectMetadata",
			// Upstream's conversion (k8s.io/apiserver pkg/endpoints/handlers/response.go) leaves nil.
			empty: "null",
		},
	}
}

// CheckListMetadata demands that every form of a list, empty or not, is labelled
// with its own kind and a revision, and that a watch from that revision shows
// the next create and nothing else.
func CheckListMetadata(t *testing.T, w *World) {
	t.Helper()
	w.createKnob(t, "b", "earlier", map[string]any{})
	for _, version := range []string{"v1", "v1beta1"} {
		for name, form := range listForms(version) {
			for place, path := range map[string]string{
				"an empty namespace": knobPath(version, "empty") + "?",
				"all namespaces":     knobPath(version, "") + "?",
				"one page":           knobPath(version, "") + "?limit=1",
				"the cache":          knobPath(version, "empty") + "?resourceVersion=0",
				"nothing selected":   knobPath(version, "b") + "?labelSelector=no%3Dbody",
			} {
				if err := w.checkListForm(t.Context(), path, form); err != nil {
					t.Errorf("%s of %s, %s: %v", name, place, version, err)
				}
			}
			w.checkNextCreate(t, version, name, form)
		}
	}
}

// checkListForm looks at the list as a client without knowledge of types does.
func (w *World) checkListForm(ctx context.Context, path string, form listForm) error {
	var got map[string]json.RawMessage
	if err := w.must(ctx, http.MethodGet, path, nil, &got, "Accept", form.accept); err != nil {
		return err
	}
	var metadata metav1.ListMeta
	if err := json.Unmarshal(got["metadata"], &metadata); err != nil {
		return fmt.Errorf("decoding the metadata: %w", err)
	}
	if metadata.ResourceVersion == "" || metadata.ResourceVersion == "0" {
		return fmt.Errorf("resourceVersion is %q", metadata.ResourceVersion)
	}
	if kind, version := string(got["kind"]), string(got["apiVersion"]); kind != `"`+form.kind+`"` || version != `"`+form.apiVersion+`"` {
		return fmt.Errorf("the list is a %s in %s, want %s in %s", kind, version, form.kind, form.apiVersion)
	}
	entries := string(got[form.entries])
	isEmpty := strings.Contains(path, "/empty/") || strings.Contains(path, "labelSelector")
	if isEmpty && entries != form.empty {
		return fmt.Errorf("%s of an empty list is %q, want %s", form.entries, entries, form.empty)
	}
	if !isEmpty && !strings.HasPrefix(entries, "[{") {
		return fmt.Errorf("%s is %q, want objects", form.entries, entries)
	}
	return nil
}

// checkNextCreate lists, creates an object and watches from the list's revision.
func (w *World) checkNextCreate(t *testing.T, version, formName string, form listForm) {
	t.Helper()
	var before itemList
	if err := w.must(t.Context(), http.MethodGet, knobPath(version, ""), nil, &before); err != nil {
		t.Fatal(err)
	}
	name := "next-" + formName + "-" + version
	w.createKnob(t, "b", name, map[string]any{})
	got, err := w.do(t.Context(), http.MethodGet,
		knobPath(version, "")+"?watch=true&timeoutSeconds=1&resourceVersion="+before.Metadata.ResourceVersion, nil, "Accept", form.watchAccept)
	if err != nil {
		t.Fatal(err)
	}
	all, err := frames(got.body)
	if err != nil || len(all) != 1 || all[0].Type != "ADDED" {
		t.Errorf("%s %s: the stream is %s (%v), want one ADDED", formName, version, got.body, err)
		return
	}
	var event struct {
		Kind     string            `json:"kind"`
		Metadata metav1.ObjectMeta `json:"metadata"`
		Rows     []struct {
			Object struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
			} `json:"object"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(all[0].Object, &event); err != nil {
		t.Errorf("decoding %s: %v", all[0].Object, err)
		return
	}
	if len(event.Rows) == 1 {
		event.Metadata = event.Rows[0].Object.Metadata
	}
	if event.Kind != form.eventKind || event.Metadata.Name != name {
		t.Errorf("%s %s: the event is a %s of %q, want %s of %q", formName, version, event.Kind, event.Metadata.Name, form.eventKind, name)
	}
}
