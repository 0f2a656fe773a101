// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

func annexedGroup(mode v1alpha1.ServingMode) *v1alpha1.AnnexedGroup {
	return &v1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: lab}, Status: v1alpha1.AnnexedGroupStatus{Serving: mode}}
}

func awaitServing(t *testing.T, gate *Gate, want v1alpha1.ServingMode) {
	t.Helper()
	await(t, gate, want, gate.HasSynced)
}

// awaitKnown waits until the gate has read an AnnexedGroup, whatever else it has read.
func awaitKnown(t *testing.T, gate *Gate, want v1alpha1.ServingMode) {
	t.Helper()
	await(t, gate, want, func() bool { return true })
}

func await(t *testing.T, gate *Gate, want v1alpha1.ServingMode, ready func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return ready() && gate.Serving(lab) == want, nil
	})
	if err != nil {
		t.Fatalf("waiting for %q: got %q: %v", want, gate.Serving(lab), err)
	}
}

// following is a gate that follows informers of two sources. Neither informer runs yet.
func following(t *testing.T, groups, definitions cache.ListerWatcher) (gate *Gate, runGroups, runDefinitions func()) {
	t.Helper()
	groupInformer := cache.NewSharedInformer(groups, &v1alpha1.AnnexedGroup{}, 0)
	definitionInformer := cache.NewSharedIndexInformer(definitions, &apiextensionsv1.CustomResourceDefinition{}, 0, cache.Indexers{})
	gate = NewGate(nil)
	if err := gate.Follow(groupInformer, definitionInformer); err != nil {
		t.Fatal(err)
	}
	return gate, func() { go groupInformer.RunWithContext(t.Context()) }, func() { go definitionInformer.RunWithContext(t.Context()) }
}

func TestFollow(t *testing.T) {
	groups, definitions := cachetesting.NewFakeControllerSource(), cachetesting.NewFakeControllerSource()
	groups.Add(annexedGroup(""))
	gate, runGroups, runDefinitions := following(t, groups, definitions)
	if gate.HasSynced() {
		t.Error("the gate has synced before the informers run")
	}
	runDefinitions()
	runGroups()
	awaitServing(t, gate, closed)
	for _, mode := range []v1alpha1.ServingMode{readOnly, open, released} {
		groups.Modify(annexedGroup(mode))
		awaitServing(t, gate, mode)
	}
	groups.Delete(annexedGroup(released))
	awaitServing(t, gate, "")
}

func definition(name string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name + "." + lab},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: lab},
	}
}

// awaitMode waits until a read that the cluster sends is refused by a mode, or passes if that is empty.
func awaitMode(t *testing.T, gate *Gate, want v1alpha1.ServingMode) {
	t.Helper()
	var last v1alpha1.ServingMode
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		p, mode := gate.admit(lab, read, true, nil)
		if p != nil {
			p.leave()
		}
		last = mode
		return mode == want, nil
	})
	if err != nil {
		t.Fatalf("waiting for %q: got %q: %v", want, last, err)
	}
}

func TestFollowDefinitions(t *testing.T) {
	groups, definitions := cachetesting.NewFakeControllerSource(), cachetesting.NewFakeControllerSource()
	groups.Add(annexedGroup(open))
	definitions.Add(definition("gadgets"))
	gate, runGroups, runDefinitions := following(t, groups, definitions)
	runGroups()
	awaitKnown(t, gate, open)
	if p, mode := gate.admit(lab, read, true, nil); p != nil || mode != starting {
		t.Errorf("before the definitions are known: got %v and mode %q, want a refusal by %q", p, mode, starting)
	}
	runDefinitions()
	awaitMode(t, gate, "")
	groups.Delete(annexedGroup(open))
	awaitServing(t, gate, "")
	awaitMode(t, gate, "")
	definitions.Add(definition("planets"))
	definitions.Delete(definition("gadgets"))
	definitions.Delete(definition("planets"))
	awaitMode(t, gate, unknown)
	groups.Add(annexedGroup(open))
	awaitMode(t, gate, "")
	groups.Delete(annexedGroup(open))
	awaitMode(t, gate, unknown)
	definitions.Add(definition("planets"))
	awaitMode(t, gate, "")
}

func TestForgetsADeletionThatWasMissed(t *testing.T) {
	gate := syncedGate(nil)
	gate.observe(annexedGroup(released))
	gate.observe("something else")
	assertServing(t, gate, released)
}
