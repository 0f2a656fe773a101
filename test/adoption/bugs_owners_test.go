// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeannex/annex/test/adoption/scenario"
)

// TestOwnersAcrossServers deletes owners in every way, with owner and dependent
// on the same server and on different ones (kubernetes/kubernetes 102641, 98040).
func TestOwnersAcrossServers(t *testing.T) {
	group := suite.cluster.NewGroup(t, "owners.annex.test", nil)
	group.Seed(t, 10, 5)
	adopt(t, group)
	startControllerManager(t)
	f := newFamily(t, group)
	f.mustCollect(t, "adopted")
	gadgets := group.Gadgets("v1")
	for name, tc := range map[string]struct{ owner, dependent schema.GroupVersionResource }{
		"gadget owns configmap":         {gadgets, configMaps},
		"gadget v1beta1 owns configmap": {group.Gadgets("v1beta1"), configMaps},
		"deployment owns gadget":        {deployments, gadgets},
		"planet owns gadget":            {group.Planets(), gadgets},
	} {
		for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
			t.Run(fmt.Sprintf("%s, %s", name, policy), func(t *testing.T) {
				t.Parallel()
				prefix := strings.ReplaceAll(name, " ", "-") + "-" + strings.ToLower(string(policy))
				f.deleteOwner(t, tc.owner, tc.dependent, prefix, policy)
			})
		}
	}
}

// TestOwnersOfAnUnservedVersion takes a version away that owner references name:
// what the garbage collector does then is what it does with a group of the
// cluster's own, and everything else about owners works as before.
func TestOwnersOfAnUnservedVersion(t *testing.T) {
	local := suite.cluster.NewGroup(t, "local-owners.annex.test", nil)
	annexed := suite.cluster.NewGroup(t, "unserved-owners.annex.test", nil)
	annexed.Seed(t, 10, 5)
	adopt(t, annexed)
	families := []*family{newFamily(t, local), newFamily(t, annexed)}
	for _, f := range families {
		owner := f.create(t, f.group.Gadgets("v1"), "old-owner")
		owner.SetAPIVersion(f.group.Gadgets("v1beta1").GroupVersion().String())
		f.create(t, configMaps, "old-dependent", owner)
		f.serveBeta(t, false)
	}
	startControllerManager(t) // it knows the versions of its start
	left := map[string]bool{}
	for _, f := range families {
		f.mustCollect(t, "a version is not served")
		f.delete(t, f.group.Gadgets("v1"), "old-owner", metav1.DeletePropagationBackground)
		f.waitGone(t, f.group.Gadgets("v1"), "old-owner")
		f.mustCollect(t, "after the owner's deletion")
		left[f.group.Name] = f.uid(t, configMaps, "old-dependent") != ""
	}
	if left[local.Name] != left[annexed.Name] {
		t.Errorf("a dependent of a version that is not served is left: %v, want the same for both", left)
	}
	t.Run("other versions", func(t *testing.T) {
		f := families[1]
		for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
			for _, pair := range [][2]schema.GroupVersionResource{{annexed.Gadgets("v1"), configMaps}, {deployments, annexed.Gadgets("v1")}, {annexed.Planets(), annexed.Gadgets("v1")}} {
				t.Run(fmt.Sprintf("%s owns %s, %s", pair[0].Resource, pair[1].Resource, policy), func(t *testing.T) {
					t.Parallel()
					f.deleteOwner(t, pair[0], pair[1], fmt.Sprintf("%s-%s-%s", pair[0].Resource, pair[1].Resource, strings.ToLower(string(policy))), policy)
				})
			}
		}
	})
	for _, f := range families {
		f.serveBeta(t, true)
	}
	startControllerManager(t)
	for _, f := range families {
		f.waitGone(t, configMaps, "old-dependent")
	}
}

// serveBeta serves version v1beta1 of gadgets or not, and waits until that is so.
func (f *family) serveBeta(t *testing.T, served bool) {
	t.Helper()
	err := changeDefinition(t, f.group, "gadgets", func(definition *apiextensionsv1.CustomResourceDefinition) {
		for i := range definition.Spec.Versions {
			if definition.Spec.Versions[i].Name == "v1beta1" {
				definition.Spec.Versions[i].Served = served
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	beta := f.client.Resource(f.group.Gadgets("v1beta1"))
	err = scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		_, err := beta.List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) == served || err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("v1beta1 is to be served: %t, but the answer is: %w", served, errors.Join(err, errors.New("or a list")))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (f *family) delete(t *testing.T, gvr schema.GroupVersionResource, name string, policy metav1.DeletionPropagation) {
	t.Helper()
	if err := f.resource(gvr).Delete(scenario.Context(t), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
}

// deleteOwner deletes an owner and looks at what becomes of it and its dependent.
func (f *family) deleteOwner(t *testing.T, owners, dependents schema.GroupVersionResource, prefix string, policy metav1.DeletionPropagation) {
	ctx := scenario.Context(t)
	owner := f.create(t, owners, prefix+"-owner")
	dependent := f.create(t, dependents, prefix+"-dependent", owner)
	hold := []byte(`{"metadata":{"finalizers":["` + scenario.HoldFinalizer + `"]}}`)
	if policy == metav1.DeletePropagationForeground {
		if _, err := f.resource(dependents).Patch(ctx, dependent.GetName(), types.MergePatchType, hold, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.delete(t, owners, owner.GetName(), policy)
	switch policy {
	case metav1.DeletePropagationForeground:
		f.waitMarked(t, dependents, dependent.GetName())
		if f.uid(t, owners, owner.GetName()) == "" {
			t.Error("the owner went before its dependent")
		}
		free := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := f.resource(dependents).Patch(ctx, dependent.GetName(), types.MergePatchType, free, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		f.waitGone(t, dependents, dependent.GetName())
		f.waitGone(t, owners, owner.GetName())
	case metav1.DeletePropagationOrphan:
		f.waitGone(t, owners, owner.GetName())
		left, err := f.resource(dependents).Get(ctx, dependent.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if left.GetDeletionTimestamp() != nil || len(left.GetOwnerReferences()) > 0 {
			t.Errorf("orphan %v, want one without owners that stays", left.Object["metadata"])
		}
	default:
		f.waitGone(t, owners, owner.GetName())
		f.waitGone(t, dependents, dependent.GetName())
	}
}

// waitMarked waits until an object is being deleted.
func (f *family) waitMarked(t *testing.T, gvr schema.GroupVersionResource, name string) {
	t.Helper()
	err := scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		object, err := f.resource(gvr).Get(ctx, name, metav1.GetOptions{})
		if err == nil && object.GetDeletionTimestamp() == nil {
			err = errors.New("it is not being deleted")
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s %s: %v", gvr.Resource, name, err)
	}
}
