// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeannex/annex/test/env"
)

// FillNamespace makes a namespace with gadgets, one of them with a finalizer, and a ConfigMap.
func (g *Group) FillNamespace(tb testing.TB, namespace string) {
	tb.Helper()
	ctx, config := Context(tb), g.cluster.HostConfig(tb, 0)
	if err := env.EnsureNamespace(ctx, config, namespace); err != nil {
		tb.Fatal(err)
	}
	gadgets := g.HostClient(tb, g.Gadgets("v1")).Namespace(namespace)
	for i := range 20 {
		gadget := g.Object("Gadget", namespace, fmt.Sprintf("g-%d", i), nil)
		if i == 0 {
			gadget.SetName("held")
			gadget.SetFinalizers([]string{HoldFinalizer})
		}
		if _, err := gadgets.Create(ctx, gadget, metav1.CreateOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
	_, err := g.cluster.HostKube(tb).CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
}

// DeleteNamespace begins the deletion of a namespace of the host.
func (c *Cluster) DeleteNamespace(tb testing.TB, name string) {
	tb.Helper()
	if err := c.HostKube(tb).CoreV1().Namespaces().Delete(Context(tb), name, metav1.DeleteOptions{}); err != nil {
		tb.Fatal(err)
	}
}

// RemoveHold waits until only the held gadget is left, shows that the namespace
// waits for it, and takes its finalizer off.
func (g *Group) RemoveHold(tb testing.TB, namespace string) {
	tb.Helper()
	gadgets := g.HostClient(tb, g.Gadgets("v1")).Namespace(namespace)
	err := Poll(Context(tb), func(ctx context.Context) error {
		list, err := gadgets.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			tb.Fatalf("the gadget of %s went although it has a finalizer", namespace)
		}
		if len(list.Items) > 1 || list.Items[0].GetDeletionTimestamp() == nil {
			return fmt.Errorf("%d gadgets are left", len(list.Items))
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := g.cluster.HostKube(tb).CoreV1().Namespaces().Get(Context(tb), namespace, metav1.GetOptions{}); err != nil {
		tb.Errorf("namespace %s while a gadget has a finalizer: %v", namespace, err)
	}
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := gadgets.Patch(Context(tb), "held", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		tb.Fatal(err)
	}
}

// WaitNamespaceGone waits until a namespace is gone from the host, and fails the
// test when annex still stores something in it.
func (g *Group) WaitNamespaceGone(tb testing.TB, name string) {
	tb.Helper()
	err := Poll(Context(tb), func(ctx context.Context) error {
		namespace, err := g.cluster.HostKube(tb).CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("conditions %v", namespace.Status.Conditions))
	})
	if err != nil {
		tb.Fatalf("namespace %s does not end: %v", name, err)
	}
	for _, key := range g.AnnexKeys(tb) {
		if strings.Contains(key, "/"+name+"/") {
			tb.Errorf("namespace %s is gone, annex still stores %s", name, key)
		}
	}
}

// WaitNamespaceStuck waits until the namespace controller says that it could
// not look at all kinds.
func (c *Cluster) WaitNamespaceStuck(tb testing.TB, name string) {
	tb.Helper()
	err := Poll(Context(tb), func(ctx context.Context) error {
		namespace, err := c.HostKube(tb).CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			tb.Fatalf("namespace %s while annex is down: %v", name, err)
		}
		for _, condition := range namespace.Status.Conditions {
			failure := condition.Type == corev1.NamespaceDeletionDiscoveryFailure || condition.Type == corev1.NamespaceDeletionContentFailure
			if failure && condition.Status == corev1.ConditionTrue {
				tb.Logf("%s: %s", condition.Type, condition.Message)
				return nil
			}
		}
		return fmt.Errorf("conditions %v", namespace.Status.Conditions)
	})
	if err != nil {
		tb.Fatal(err)
	}
}
