// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	// maxDifferences bounds how many objects a difference shows.
	maxDifferences = 5
	// snapshotPage is the number of objects of one page of a list.
	snapshotPage = 1000
	// WriterPrefix begins the names of all objects of writers and markers, which snapshots of seeds leave out.
	WriterPrefix = "w-"
)

// Snapshot is every object of a group with all its fields but resourceVersion,
// by "resource/namespace/name".
type Snapshot map[string]map[string]any

// Snapshot lists all seeded objects of the group at the server of config: those
// of writers and markers are left out.
func (g *Group) Snapshot(tb testing.TB, config *rest.Config) Snapshot {
	tb.Helper()
	return g.SnapshotOf(tb, config, func(name string) bool { return !strings.HasPrefix(name, WriterPrefix) })
}

// SnapshotOf lists the objects of the group whose names are wanted.
func (g *Group) SnapshotOf(tb testing.TB, config *rest.Config, wanted func(name string) bool) Snapshot {
	tb.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	snapshot := Snapshot{}
	for _, gvr := range g.resources {
		if err := snapshot.list(Context(tb), client, gvr, wanted); err != nil {
			tb.Fatalf("listing %s: %v", gvr, err)
		}
	}
	return snapshot
}

// SnapshotResource lists all objects of one resource, in any version.
func (g *Group) SnapshotResource(tb testing.TB, config *rest.Config, gvr schema.GroupVersionResource) Snapshot {
	tb.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	snapshot := Snapshot{}
	if err := snapshot.list(Context(tb), client, gvr, func(string) bool { return true }); err != nil {
		tb.Fatalf("listing %s: %v", gvr, err)
	}
	return snapshot
}

func (s Snapshot) list(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, wanted func(string) bool) error {
	options := metav1.ListOptions{Limit: snapshotPage}
	for {
		list, err := client.Resource(gvr).List(ctx, options)
		if err != nil {
			return err
		}
		for _, item := range list.Items {
			if wanted(item.GetName()) {
				s.add(gvr, item)
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func (s Snapshot) add(gvr schema.GroupVersionResource, item unstructured.Unstructured) {
	unstructured.RemoveNestedField(item.Object, "metadata", "resourceVersion")
	s[objectKey(gvr, item.GetNamespace(), item.GetName())] = item.Object
}

func objectKey(gvr schema.GroupVersionResource, namespace, name string) string {
	return gvr.Resource + "/" + namespace + "/" + name
}

// Diff tells how another snapshot differs: "" when it does not. It names all
// objects that are missing or new and shows the first few that changed.
func (s Snapshot) Diff(other Snapshot) string {
	var text strings.Builder
	shown := 0
	for _, key := range slices.Sorted(maps.Keys(s)) {
		object, found := other[key]
		switch {
		case !found:
			fmt.Fprintf(&text, "%s is missing\n", key)
		case reflect.DeepEqual(s[key], object):
		case shown < maxDifferences:
			shown++
			fmt.Fprintf(&text, "%s (-before +after):\n%s", key, cmp.Diff(s[key], object))
		default:
			fmt.Fprintf(&text, "%s differs\n", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(other)) {
		if _, found := s[key]; !found {
			fmt.Fprintf(&text, "%s is new\n", key)
		}
	}
	return text.String()
}

// MustEqual fails the test unless the other snapshot is the same.
func (s Snapshot) MustEqual(tb testing.TB, other Snapshot) {
	tb.Helper()
	if diff := s.Diff(other); diff != "" {
		const most = 4000
		tb.Errorf("objects differ:\n%s", diff[:min(len(diff), most)])
	}
}
