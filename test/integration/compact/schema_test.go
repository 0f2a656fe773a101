// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/wait"
)

// TestSchemaChanges removes a field from a schema and adds a default for another, while objects without it are stored: both
// are seen at every read.
func TestSchemaChanges(t *testing.T) {
	w := shared
	w.mustSettle(t)
	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/shifts.lab.annex.test"
	changes := map[string]struct {
		patch string
		// shows says whether a list shows the change.
		shows func(list string) bool
	}{
		"1 a default is added": {
			patch: `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/late","value":{"type":"object","default":{"r":{"b":"<&>","a":1,"minus":-0.0,"one":1.0,"hundred":1e2,"large":1e21}},"x-kubernetes-preserve-unknown-fields":true}}]`,
			shows: func(list string) bool { return strings.Contains(list, `"late"`) },
		},
		"2 a field is removed": {
			patch: `[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/gone"}]`,
			shows: func(list string) bool { return strings.Contains(list, `"kept"`) && !strings.Contains(list, `"deep"`) },
		},
		"3 the default changes and a column is added": {
			patch: `[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/late/default","value":{"r":2}},{"op":"add","path":"/spec/versions/0/additionalPrinterColumns","value":[{"name":"Late","type":"integer","jsonPath":".spec.late.r"}]},` +
				`{"op":"add","path":"/spec/versions/0/selectableFields","value":[{"jsonPath":".spec.kept"}]}]`,
			shows: func(list string) bool { return strings.Contains(list, `"late":{"r":2}`) },
		},
	}
	for _, name := range sortedKeys(changes) {
		change := changes[name]
		t.Run(name, func(t *testing.T) {
			if err := w.plain.must(t.Context(), patch(jsonPatch, definition, change.patch)); err != nil {
				t.Fatal(err)
			}
			for _, s := range w.sides() {
				err := wait.PollUntilContextCancel(t.Context(), pollInterval, true, func(ctx context.Context) (bool, error) {
					got, err := s.ask(ctx, get(shifts()+"?resourceVersion=0"))
					return got.code == http.StatusOK && change.shows(string(got.body)), err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			w.mustSettle(t)
			w.sameShifts(t)
		})
	}
}

// sameShifts compares lists, objects and watches in every form, and then what a write makes of an object.
func (w *world) sameShifts(t *testing.T) {
	t.Helper()
	now := fmt.Sprint(w.etcd.Revision())
	for name, accept := range served("PartialObjectMetadata") {
		w.same(t, get(shifts()+"/s-1", "Accept", accept))
		w.same(t, get(shifts()+"/s-1?resourceVersion=0", "Accept", accept))
		for _, query := range []string{"", "?resourceVersion=0", "?limit=2", "?resourceVersion=" + now + exact, "?fieldSelector=spec.kept%3Dk1"} {
			w.same(t, get(shifts()+query, "Accept", served("PartialObjectMetadataList")[name]))
		}
	}
	var group sync.WaitGroup
	for _, query := range []string{"", "&resourceVersion=0", "&sendInitialEvents=true&allowWatchBookmarks=true" + notOlder, "&resourceVersion=0&fieldSelector=spec.kept%3Dk1"} {
		for _, accept := range []string{jsonType, as(jsonType, "Table", "v1"), as(protobufType, "PartialObjectMetadata", "v1")} {
			group.Go(func() { w.same(t, get(shifts()+"?watch=1&timeoutSeconds=1"+query, "Accept", accept)) })
		}
	}
	group.Wait()
	if err := w.compact.must(t.Context(), patch(mergePatch, shifts()+"/s-3", `{"metadata":{"annotations":{"touched":"`+now+`"}}}`)); err != nil {
		t.Fatal(err)
	}
	w.mustSettle(t)
	w.same(t, get(shifts()))
	w.same(t, get(shifts()+"?watch=1&timeoutSeconds=1&resourceVersion="+now))
}
