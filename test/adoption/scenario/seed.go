// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kubeannex/annex/test/env"
)

const (
	// seedWriters is how many objects are created at a time.
	seedWriters = 16
	// HoldFinalizer keeps seeded objects that are being deleted.
	HoldFinalizer = "lab.annex.test/hold"
	// largeNote is the size in bytes of the largest objects.
	largeNote = 60_000
)

// seeder creates the objects of a group.
type seeder struct {
	gadgets, gadgetsBeta, planets dynamic.NamespaceableResourceInterface

	group *Group
	// owner is a gadget of each namespace that others name as their owner.
	owners map[string]*unstructured.Unstructured
}

// Seed fills the group with objects of many shapes, given as the numbers of
// gadgets and planets: some with a status, with several field managers and
// versions in managedFields, with finalizers, being deleted, owned by others, large.
func (g *Group) Seed(tb testing.TB, gadgets, planets int) {
	tb.Helper()
	s := &seeder{
		group:       g,
		gadgets:     g.HostClient(tb, g.Gadgets("v1")),
		gadgetsBeta: g.HostClient(tb, g.Gadgets("v1beta1")),
		planets:     g.HostClient(tb, g.Planets()),
		owners:      map[string]*unstructured.Unstructured{},
	}
	ctx := Context(tb)
	for _, namespace := range g.Namespaces {
		owner, err := s.gadgets.Namespace(namespace).Create(ctx, g.Object("Gadget", namespace, "owner", nil), metav1.CreateOptions{})
		if err != nil {
			tb.Fatal(err)
		}
		s.owners[namespace] = owner
	}
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(seedWriters)
	for i := range gadgets {
		workers.Go(func() error { return s.gadget(ctx, i) })
	}
	for i := range planets {
		workers.Go(func() error { return s.planet(ctx, i) })
	}
	if err := workers.Wait(); err != nil {
		tb.Fatalf("seeding %s: %v", g.Name, err)
	}
}

// Object builds an object of the group at version v1.
func (g *Group) Object(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := env.Object(kind, namespace, name, spec)
	object.SetAPIVersion(g.Name + "/v1")
	return object
}

func (s *seeder) gadget(ctx context.Context, i int) error {
	namespace := s.group.Namespaces[i%len(s.group.Namespaces)]
	client := s.gadgets.Namespace(namespace)
	object := env.SeedGadget(namespace, i)
	object.SetAPIVersion(s.group.Name + "/v1")
	if i%9 == 0 {
		object.SetFinalizers([]string{HoldFinalizer})
	}
	if i%11 == 0 {
		owner := s.owners[namespace]
		object.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
		}})
	}
	if i%50 == 0 {
		if err := unstructured.SetNestedField(object.Object, strings.Repeat("long ", largeNote/5), "spec", "note"); err != nil {
			return err
		}
	}
	if _, err := client.Create(ctx, object, metav1.CreateOptions{FieldManager: "seeder"}); err != nil {
		return err
	}
	name := object.GetName()
	if i%5 == 0 {
		status := fmt.Sprintf(`{"status":{"size":%d,"conditions":[{"type":"Ready","status":"True"}]}}`, i)
		if _, err := client.Patch(ctx, name, types.MergePatchType, []byte(status), metav1.PatchOptions{FieldManager: "status-writer"}, "status"); err != nil {
			return err
		}
	}
	if i%7 == 0 {
		if err := s.apply(ctx, namespace, name); err != nil {
			return err
		}
	}
	if i%18 == 0 {
		return client.Delete(ctx, name, metav1.DeleteOptions{})
	}
	return nil
}

// apply sets a field by server-side apply in the older version.
func (s *seeder) apply(ctx context.Context, namespace, name string) error {
	patch, err := json.Marshal(map[string]any{
		"apiVersion": s.group.Name + "/v1beta1", "kind": "Gadget",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"applied": "yes"}},
	})
	if err != nil {
		return err
	}
	_, err = s.gadgetsBeta.Namespace(namespace).Patch(ctx, name, types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: "applier"})
	return err
}

func (s *seeder) planet(ctx context.Context, i int) error {
	// The largest integers of JSON numbers must survive too.
	object := s.group.Object("Planet", "", fmt.Sprintf("p-%05d", i), map[string]any{
		"moons": int64(i), "mass": int64(9223372036854775807), "radius": 0.1,
		"rings": []any{map[string]any{"name": "a", "gap": nil}, "b"},
	})
	if i%9 == 0 {
		object.SetFinalizers([]string{HoldFinalizer})
	}
	if _, err := s.planets.Create(ctx, object, metav1.CreateOptions{FieldManager: "seeder"}); err != nil {
		return err
	}
	if i%18 == 0 {
		return s.planets.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
	}
	return nil
}

// SeedMorphs creates n morphs, every other one in the version that is not stored.
func (g *Group) SeedMorphs(tb testing.TB, n int) {
	tb.Helper()
	for i := range n {
		version, field := "v1", "color"
		if i%2 == 1 {
			version, field = "v2", "colour"
		}
		object := g.Object("Morph", g.Namespaces[0], fmt.Sprintf("m-%03d", i), map[string]any{field: "red", "size": int64(i)})
		object.SetAPIVersion(g.Name + "/" + version)
		client := g.HostClient(tb, g.Morphs(version)).Namespace(g.Namespaces[0])
		if _, err := client.Create(Context(tb), object, metav1.CreateOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
}
