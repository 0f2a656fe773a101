// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"testing"
	"time"

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
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return gate.HasSynced() && gate.Serving(lab) == want, nil
	})
	if err != nil {
		t.Fatalf("waiting for %q: got %q: %v", want, gate.Serving(lab), err)
	}
}

func TestFollow(t *testing.T) {
	source := cachetesting.NewFakeControllerSource()
	source.Add(annexedGroup(""))
	informer := cache.NewSharedInformer(source, &v1alpha1.AnnexedGroup{}, 0)
	gate := NewGate(nil)
	if err := gate.Follow(informer); err != nil {
		t.Fatal(err)
	}
	if gate.HasSynced() {
		t.Error("the gate has synced before the informer runs")
	}
	go informer.RunWithContext(t.Context())
	awaitServing(t, gate, closed)
	for _, mode := range []v1alpha1.ServingMode{readOnly, open, released} {
		source.Modify(annexedGroup(mode))
		awaitServing(t, gate, mode)
	}
	source.Delete(annexedGroup(released))
	awaitServing(t, gate, "")
}

func TestForgetsADeletionThatWasMissed(t *testing.T) {
	gate := syncedGate(nil)
	gate.observe(annexedGroup(released))
	gate.observe("something else")
	assertServing(t, gate, released)
}
