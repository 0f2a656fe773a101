// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
)

// morphs is how many there are.
const morphs = 10

// TestConversionWebhookDown stops a conversion webhook (kubernetes/kubernetes
// 101078): a group whose webhook is down is not adopted, and no write is held back
// meanwhile; one that is adopted answers in the stored version, other kinds and annex itself do not suffer, and
// everything is well again when the webhook is.
func TestConversionWebhookDown(t *testing.T) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	webhook, err := suite.env.StartConversionWebhook()
	if err != nil {
		t.Fatal(err)
	}
	group := cluster.NewGroup(t, "hooked.annex.test", webhook)
	group.Seed(t, 10, 5)
	group.SeedMorphs(t, morphs)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	converted := group.SnapshotResource(t, cluster.HostConfig(t, 0), group.Morphs("v2"))

	if err := webhook.Close(); err != nil {
		t.Fatal(err)
	}
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	mustBeHeldUp(t, group)
	if err := webhook.Start(); err != nil {
		t.Fatal(err)
	}
	group.WaitPhase(t, kubeannexv1alpha1.PhaseAnnexed)
	group.MustBeAnnexed(t, before)
	converted.MustEqual(t, group.SnapshotResource(t, cluster.HostConfig(t, 0), group.Morphs("v2")))

	if err := webhook.Close(); err != nil {
		t.Fatal(err)
	}
	onlyStoredVersionAnswers(t, group, before, webhook.URL())
	if err := cluster.Annex.Replicas[0].Restart(scenario.Context(t)); err != nil {
		t.Fatalf("restarting annex while the webhook is down: %v", err)
	}
	onlyStoredVersionAnswers(t, group, before, webhook.URL())
	if err := webhook.Start(); err != nil {
		t.Fatal(err)
	}
	err = scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		_, err := group.HostClient(t, group.Morphs("v2")).List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		t.Fatalf("listing v2 after the webhook came back: %v", err)
	}
	converted.MustEqual(t, group.SnapshotResource(t, cluster.HostConfig(t, 1), group.Morphs("v2")))
}

// mustBeHeldUp waits until the adoption says that it cannot go on because of the
// morphs. The host may still have all of them converted in its cache: then it is
// annex that cannot read them.
func mustBeHeldUp(t *testing.T, group *scenario.Group) {
	t.Helper()
	group.WaitFor(t, "the adoption being held up", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		if slices.Contains([]kubeannexv1alpha1.AnnexedGroupPhase{kubeannexv1alpha1.PhaseFencing, kubeannexv1alpha1.PhaseCuttingOver}, g.Status.Phase) {
			t.Fatalf("writes are held back: %s", scenario.Describe(g))
		}
		for _, condition := range g.Status.Conditions {
			if condition.Status == metav1.ConditionFalse && strings.Contains(condition.Message, "morphs") {
				t.Logf("held up in phase %s: %s", g.Status.Phase, condition.Message)
				return true
			}
		}
		return false
	})
	group.MustHaveNoFence(t)
}

// onlyStoredVersionAnswers looks at a group whose webhook is down: the stored
// version is served, the other one as a whole or not at all.
func onlyStoredVersionAnswers(t *testing.T, group *scenario.Group, before scenario.Snapshot, url string) {
	t.Helper()
	for i := range suite.cluster.Annex.Replicas {
		code, body := get(t, suite.cluster.AnnexConfig(t, i), "/apis/"+group.Name+"/v2/morphs")
		switch items := strings.Count(body, `"kind":"Morph"`); {
		case code == 200 && items == morphs:
			// All of them were converted into the cache before.
		case code == 500 && strings.Contains(body, "conversion webhook") && strings.Contains(body, strings.TrimPrefix(url, "https://")):
		case code == 429:
			// The cache cannot be filled, and the client asks again.
		default:
			t.Errorf("replica %d answers a list of v2 with %d and %d of %d objects: %.300s", i, code, items, morphs, body)
		}
		if code, body := get(t, suite.cluster.AnnexConfig(t, i), "/readyz"); code != 200 {
			t.Errorf("replica %d is not ready: %d %.200s", i, code, body)
		}
	}
	before.MustEqual(t, group.Snapshot(t, suite.cluster.HostConfig(t, 0)))
	created, err := group.HostClient(t, group.Planets()).Create(scenario.Context(t),
		group.Object("Planet", "", scenario.WriterPrefix+"other", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating another kind: %v", err)
	}
	if err := group.HostClient(t, group.Planets()).Delete(scenario.Context(t), created.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatalf("deleting another kind: %v", err)
	}
}
