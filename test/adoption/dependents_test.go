// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"errors"
	"fmt"
	"path"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubeannex/annex/test/adoption/scenario"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// startControllerManager starts kube-controller-manager, or starts it again, so
// that it knows the groups that are served now: it would look only every 30 seconds.
func startControllerManager(t *testing.T) {
	t.Helper()
	ctx, host := scenario.Context(t), suite.cluster.Host
	var err error
	if host.ControllerManager == nil {
		err = host.StartControllerManager(ctx)
	} else {
		err = host.ControllerManager.Restart(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// family makes and finds objects that own each other.
type family struct {
	group  *scenario.Group
	client dynamic.Interface
	// namespace holds all that are namespaced.
	namespace string
}

func newFamily(t *testing.T, group *scenario.Group) *family {
	t.Helper()
	client, err := dynamic.NewForConfig(suite.cluster.HostConfig(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	return &family{group: group, client: client, namespace: group.Namespaces[0]}
}

func (f *family) resource(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	if gvr.Resource == "planets" || gvr.Resource == "namespaces" {
		return f.client.Resource(gvr)
	}
	return f.client.Resource(gvr).Namespace(f.namespace)
}

// create makes an object of a resource; owners are named in it as they are given.
func (f *family) create(t *testing.T, gvr schema.GroupVersionResource, name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	kind := map[string]string{"gadgets": "Gadget", "planets": "Planet", "configmaps": "ConfigMap", "deployments": "Deployment"}[gvr.Resource]
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": kind}}
	if gvr == deployments {
		labels := map[string]any{"app": name}
		object.Object["spec"] = map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "none"}}},
			},
		}
	}
	object.SetName(name)
	var references []metav1.OwnerReference
	for _, owner := range owners {
		references = append(references, metav1.OwnerReference{
			APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
			BlockOwnerDeletion: new(true),
		})
	}
	object.SetOwnerReferences(references)
	var created *unstructured.Unstructured
	err := scenario.Poll(scenario.Context(t), func(ctx context.Context) (err error) {
		created, err = f.resource(gvr).Create(ctx, object, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatalf("creating %s %s: %v", gvr.Resource, name, err)
	}
	return created
}

// waitGone waits until an object is gone.
func (f *family) waitGone(t *testing.T, gvr schema.GroupVersionResource, name string) {
	t.Helper()
	err := scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		_, err := f.resource(gvr).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("%s %s is still there", gvr.Resource, name))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// uid returns the UID of an object, "" when it is gone.
func (f *family) uid(t *testing.T, gvr schema.GroupVersionResource, name string) string {
	t.Helper()
	object, err := f.resource(gvr).Get(scenario.Context(t), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if object == nil || err != nil {
		return ""
	}
	return string(object.GetUID())
}

// absentOwner is an object that does not exist.
func (f *family) absentOwner(gvr schema.GroupVersionResource, kind string) *unstructured.Unstructured {
	owner := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": kind}}
	owner.SetName("never-was")
	owner.SetNamespace(f.namespace)
	owner.SetUID("11111111-2222-3333-4444-555555555555")
	return owner
}

// mustCollect proves that the garbage collector works on the group, both on
// owners and on dependents of it: objects whose owner does not exist disappear.
func (f *family) mustCollect(t *testing.T, stage string) {
	t.Helper()
	begin := time.Now()
	gadgets := f.group.Gadgets("v1")
	suffix := fmt.Sprint(time.Now().UnixNano())
	f.create(t, configMaps, "orphan-"+suffix, f.absentOwner(gadgets, "Gadget"))
	f.create(t, gadgets, scenario.WriterPrefix+"orphan-"+suffix, f.absentOwner(configMaps, "ConfigMap"))
	f.waitGone(t, configMaps, "orphan-"+suffix)
	f.waitGone(t, gadgets, scenario.WriterPrefix+"orphan-"+suffix)
	t.Logf("%s: the garbage collector removed two orphans in %s", stage, time.Since(begin).Round(time.Millisecond))
}

// dependents are objects that must survive everything, with what they are owned by.
func (f *family) dependents(t *testing.T) map[string]schema.GroupVersionResource {
	t.Helper()
	gadgets, beta := f.group.Gadgets("v1"), f.group.Gadgets("v1beta1")
	gadget := f.create(t, gadgets, "parent-gadget")
	asBeta := gadget.DeepCopy()
	asBeta.SetAPIVersion(beta.GroupVersion().String())
	planet := f.create(t, f.group.Planets(), "parent-planet")
	root := f.create(t, configMaps, "parent-configmap")
	deployment := f.create(t, deployments, "parent-deployment")
	f.create(t, configMaps, "owned-by-gadget", gadget)
	f.create(t, configMaps, "owned-by-gadget-v1beta1", asBeta)
	f.create(t, configMaps, "owned-by-planet", planet)
	f.create(t, gadgets, "owned-by-configmap", root)
	f.create(t, gadgets, "owned-by-deployment", deployment)
	f.create(t, gadgets, "owned-by-gadget", gadget)
	f.create(t, gadgets, "owned-by-planet", planet)
	return map[string]schema.GroupVersionResource{
		"parent-gadget": gadgets, "parent-planet": f.group.Planets(), "parent-configmap": configMaps, "parent-deployment": deployments,
		"configmaps/owned-by-gadget": configMaps, "owned-by-gadget-v1beta1": configMaps, "configmaps/owned-by-planet": configMaps,
		"owned-by-configmap": gadgets, "owned-by-deployment": gadgets, "gadgets/owned-by-gadget": gadgets, "gadgets/owned-by-planet": gadgets,
	}
}

// TestDependentsSurvive runs kube-controller-manager over owners and dependents
// inside and outside the group: an adoption, a restart of annex and of the garbage
// collector, and a release take none of them away.
func TestDependentsSurvive(t *testing.T) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	group := cluster.NewGroup(t, "family.annex.test", nil)
	group.Seed(t, 40, 10)
	f := newFamily(t, group)
	members := f.dependents(t)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	uids := f.uids(t, members)
	startControllerManager(t)
	mustSurvive := func(stage string) {
		t.Helper()
		f.mustCollect(t, stage)
		if diff := cmp.Diff(uids, f.uids(t, members)); diff != "" {
			t.Fatalf("%s: UIDs (-before +after):\n%s", stage, diff)
		}
		before.MustEqual(t, group.Snapshot(t, cluster.HostConfig(t, 0)))
	}
	mustSurvive("before the adoption")
	adopt(t, group)
	mustSurvive("adopted")

	for _, server := range cluster.Annex.Replicas {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	startControllerManager(t)
	if err := cluster.Heal(scenario.Context(t)); err != nil {
		t.Fatal(err)
	}
	mustSurvive("annex killed, the garbage collector started without it")
	group.Delete(t)
	group.WaitGone(t)
	mustSurvive("released")
}

func (f *family) uids(t *testing.T, members map[string]schema.GroupVersionResource) map[string]string {
	t.Helper()
	uids := map[string]string{}
	for key, gvr := range members {
		uids[key] = f.uid(t, gvr, path.Base(key))
	}
	return uids
}
