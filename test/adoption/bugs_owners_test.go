// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

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
	if err := f.resource(owners).Delete(ctx, owner.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
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
