// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"fmt"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

// TestThroughLabelIndex sends all requests once more to a server that has an index of
// the label that they select by, and dispatches watches by it. The other tests of the
// package go past any index where they select by the label, and through one where
// they select by the field. Kube-apiserver, which has none, is held to the same rules
// by test/parity.
//
// So these public reports are covered through and past an index:
//
//   - no bookmark at the end of the initial events (antrea-io/antrea 8140): CheckWatch
//   - an expired watch that is silent (kubernetes/kubernetes 35068, 72187): CheckWatch
//   - another answer at resourceVersion 0 (kubernetes/kubernetes 60507): CheckList, CheckFieldSelectors
//   - an expired continue token without a way on (kubernetes/kubernetes 67284): CheckPages, CheckExpiredToken
//   - remainingItemCount beside a selector (kubernetes/kubernetes 101463): CheckListMetadata
func TestThroughLabelIndex(t *testing.T) {
	// The root directory holds a unix socket, whose path has to be short.
	dir, err := os.MkdirTemp("", "annex-lw-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of the system's for temporary files
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	start := func(ctx context.Context) (*Running, error) { return startAnnex(ctx, dir) }
	w, err := NewWorld(ctx, start, Variant{Prepare: declareLabelIndex})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	t.Run("GET", func(t *testing.T) { CheckGet(t, w) })
	t.Run("LIST", func(t *testing.T) { CheckList(t, w) })
	t.Run("WATCH", func(t *testing.T) { CheckWatch(t, w) })
	t.Run("field selectors", func(t *testing.T) { CheckFieldSelectors(t, w) })
	t.Run("list metadata", func(t *testing.T) { CheckListMetadata(t, w) })
	t.Run("pages", func(t *testing.T) { CheckPages(t, w) })
	t.Run("expired token", func(t *testing.T) { CheckExpiredToken(t, w) })
	t.Run("malformed", func(t *testing.T) { CheckMalformed(t, w) })
	if readFromLabelIndex(t) == 0 {
		t.Error("no list has read the index of the label, so the test has shown nothing")
	}
}

// readFromLabelIndex is how many objects lists have read from the index of the label.
func readFromLabelIndex(t *testing.T) (objects int) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "apiserver_storage_list_fetched_objects_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "index" && label.GetValue() == "l:"+teamLabel {
					objects += int(metric.GetCounter().GetValue())
				}
			}
		}
	}
	return objects
}

func declareLabelIndex(ctx context.Context, config *rest.Config) error {
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client of AnnexedGroups: %w", err)
	}
	group := &v1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: env.FixtureGroup}}
	for _, resource := range []string{"gadgets", "knobs"} {
		group.Spec.Resources = append(group.Spec.Resources, v1alpha1.AnnexedResourceSpec{
			Resource: resource, IndexLabels: []string{teamLabel}, WatchIndex: &v1alpha1.WatchIndex{Label: teamLabel},
		})
	}
	_, err = client.KubeannexV1alpha1().AnnexedGroups().Create(ctx, group, metav1.CreateOptions{})
	return err
}
