// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package indexes shows on a running server which lists read an index, and that
// an AnnexedGroup changes that without a restart.
package indexes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

const (
	gadgets   = 420
	namespace = "t"
	patience  = time.Minute
)

type world struct {
	dynamic dynamic.Interface
	annex   versioned.Interface
}

func startWorld(t *testing.T) world {
	t.Helper()
	server := testserver.StartStandalone(t)
	if err := env.InstallGadgets(t.Context(), server.ClientConfig); err != nil {
		t.Fatal(err)
	}
	if err := env.SeedGadgets(t.Context(), server.ClientConfig, namespace, gadgets); err != nil {
		t.Fatal(err)
	}
	var w world
	var err error
	if w.dynamic, err = dynamic.NewForConfig(server.ClientConfig); err != nil {
		t.Fatal(err)
	}
	if w.annex, err = versioned.NewForConfig(server.ClientConfig); err != nil {
		t.Fatal(err)
	}
	// A list at resourceVersion 0 is as old as the cache, which has the last of the seeds after this.
	for _, version := range []string{"v1", "v1beta1"} {
		if _, err := w.dynamic.Resource(env.GadgetResource(version)).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// fetched is how many gadgets lists have read from the cache so far, by index. Without one the name is empty.
func fetched(t *testing.T) map[string]int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byIndex := map[string]int{}
	for _, family := range families {
		if family.GetName() != "apiserver_storage_list_fetched_objects_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			set := labels.Set{}
			for _, label := range metric.GetLabel() {
				set[label.GetName()] = label.GetValue()
			}
			if set["group"] == env.FixtureGroup && set["storage"] == "watchcache" {
				byIndex[set["index"]] += int(metric.GetCounter().GetValue())
			}
		}
	}
	return byIndex
}

// list returns the names that a list has, and the index and the number of objects that it read.
func (w world) list(t *testing.T, version string, options metav1.ListOptions) (names []string, index string, read int) {
	t.Helper()
	before := fetched(t)
	list, err := w.dynamic.Resource(env.GadgetResource(version)).Namespace(namespace).List(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range fetched(t) {
		if n != before[name] {
			index, read = name, n-before[name]
		}
	}
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names, index, read
}

// seeded returns the names of the gadgets that match, in their order.
func seeded(match func(*unstructured.Unstructured) bool) []string {
	var names []string
	for i := range gadgets {
		if gadget := env.SeedGadget(namespace, i); match(gadget) {
			names = append(names, gadget.GetName())
		}
	}
	return names
}

func where(field, value string) func(*unstructured.Unstructured) bool {
	return func(gadget *unstructured.Unstructured) bool {
		got, found, err := unstructured.NestedFieldNoCopy(gadget.Object, strings.Split(field, ".")...)
		return err == nil && (!found && value == "" || found && fmt.Sprint(got) == value)
	}
}

func TestSelectableFieldsAreIndexed(t *testing.T) {
	w := startWorld(t)
	red := where("spec.color", "red")
	for name, tc := range map[string]struct {
		version   string
		options   metav1.ListOptions
		want      func(*unstructured.Unstructured) bool
		wantIndex string
	}{
		"string":                       {version: "v1", options: metav1.ListOptions{FieldSelector: "spec.color=red"}, want: red, wantIndex: "f:spec.color"},
		"integer":                      {version: "v1", options: metav1.ListOptions{FieldSelector: "spec.size=3"}, want: where("spec.size", "3"), wantIndex: "f:spec.size"},
		"boolean":                      {version: "v1", options: metav1.ListOptions{FieldSelector: "spec.hot=true"}, want: where("spec.hot", "true"), wantIndex: "f:spec.hot"},
		"absent":                       {version: "v1", options: metav1.ListOptions{FieldSelector: "spec.color="}, want: where("spec.color", ""), wantIndex: "f:spec.color"},
		"the other version":            {version: "v1beta1", options: metav1.ListOptions{FieldSelector: "spec.color=red"}, want: red, wantIndex: "f:spec.color"},
		"with a limit":                 {version: "v1", options: metav1.ListOptions{FieldSelector: "spec.color=red", Limit: 500}, want: red, wantIndex: "f:spec.color"},
		"from the cache":               {version: "v1", options: metav1.ListOptions{FieldSelector: "spec.color=red", ResourceVersion: "0"}, want: red, wantIndex: "f:spec.color"},
		"everything but a value":       {version: "v1", options: metav1.ListOptions{FieldSelector: "spec.color!=red"}, want: func(g *unstructured.Unstructured) bool { return !red(g) }},
		"a label that nobody declared": {version: "v1", options: metav1.ListOptions{LabelSelector: "team=a"}, want: where("metadata.labels.team", "a")},
	} {
		t.Run(name, func(t *testing.T) {
			names, index, read := w.list(t, tc.version, tc.options)
			want := seeded(tc.want)
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			wantRead := gadgets
			if tc.wantIndex != "" {
				wantRead = len(want)
			}
			if index != tc.wantIndex || read != wantRead {
				t.Errorf("read %d objects of index %q, want %d of %q", read, index, wantRead, tc.wantIndex)
			}
		})
	}
	_, err := w.dynamic.Resource(env.GadgetResource("v1beta1")).Namespace(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.size=3"})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("got %v for a field that the version cannot be selected by, want a bad request", err)
	}
}

func TestAnnexedGroupDeclaresIndexes(t *testing.T) {
	w := startWorld(t)
	byTeam := metav1.ListOptions{LabelSelector: "team=a"}
	want := seeded(where("metadata.labels.team", "a"))
	if _, index, read := w.list(t, "v1", byTeam); index != "" || read != gadgets {
		t.Errorf("read %d objects of index %q before anything was declared, want all", read, index)
	}
	watched, err := w.dynamic.Resource(env.GadgetResource("v1")).Namespace(namespace).Watch(t.Context(), byTeam)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()

	group := &v1alpha1.AnnexedGroup{Spec: v1alpha1.AnnexedGroupSpec{Resources: []v1alpha1.AnnexedResourceSpec{{
		Resource: "gadgets", IndexLabels: []string{"team"}, WatchIndex: &v1alpha1.WatchIndex{Label: "team"},
	}}}}
	group.Name = env.FixtureGroup
	if _, err := w.annex.KubeannexV1alpha1().AnnexedGroups().Create(t.Context(), group, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitForIndex(t, byTeam, "l:team", want)
	w.waitForEnd(t, watched)

	// Who watches by the label sees objects come and go.
	again, err := w.dynamic.Resource(env.GadgetResource("v1")).Namespace(namespace).Watch(t.Context(), metav1.ListOptions{LabelSelector: "team=x", ResourceVersion: w.revision(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	for _, step := range []struct {
		team string
		want watch.EventType
	}{{"x", watch.Added}, {"b", watch.Deleted}, {"x", watch.Added}} {
		w.relabel(t, want[0], step.team)
		select {
		case event := <-again.ResultChan():
			if event.Type != step.want {
				t.Errorf("got %s after the label became %s, want %s", event.Type, step.team, step.want)
			}
		case <-time.After(patience):
			t.Fatalf("no event after the label became %s", step.team)
		}
	}
	w.relabel(t, want[0], "a")

	if err := w.annex.KubeannexV1alpha1().AnnexedGroups().Delete(t.Context(), group.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitForIndex(t, byTeam, "", want)
}

// waitForIndex lists until the index is read. No answer may be wrong meanwhile.
func (w world) waitForIndex(t *testing.T, options metav1.ListOptions, wantIndex string, want []string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		names, index, _ := w.list(t, "v1", options)
		if !slices.Equal(names, want) {
			return false, fmt.Errorf("got %d objects, want %d", len(names), len(want))
		}
		return index == wantIndex, nil
	})
	if err != nil {
		t.Fatalf("waiting for index %q: %v", wantIndex, err)
	}
}

// waitForEnd waits until a watch that saw nothing but its first events has ended.
func (w world) waitForEnd(t *testing.T, watched watch.Interface) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case event, ok := <-watched.ResultChan():
			if !ok {
				return
			}
			if event.Type != watch.Added {
				t.Errorf("got %s, want the watch to end", event.Type)
			}
		case <-timeout:
			t.Fatal("the watch did not end with its cache")
		}
	}
}

func (w world) revision(t *testing.T) string {
	t.Helper()
	list, err := w.dynamic.Resource(env.GadgetResource("v1")).Namespace(namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return list.GetResourceVersion()
}

func (w world) relabel(t *testing.T, name, team string) {
	t.Helper()
	client := w.dynamic.Resource(env.GadgetResource("v1")).Namespace(namespace)
	gadget, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gadget.SetLabels(map[string]string{"team": team})
	if _, err := client.Update(t.Context(), gadget, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
