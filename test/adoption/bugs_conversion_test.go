// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
)

// TestConversionWebhookDown stops a conversion webhook (kubernetes/kubernetes
// 101078): a group whose webhook is down is not adopted; one that is adopted
// answers in the stored version, other kinds and annex itself do not suffer, and
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
	group.SeedMorphs(t, 10)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	converted := group.SnapshotResource(t, cluster.HostConfig(t, 0), group.Morphs("v2"))

	if err := webhook.Close(); err != nil {
		t.Fatal(err)
	}
	group.Adopt(t, kubeannexv1alpha1.AnnexedGroupSpec{})
	condition := group.WaitCondition(t, kubeannexv1alpha1.ConditionPreflightPassed, metav1.ConditionFalse)
	t.Logf("refused: %s", condition.Message)
	if !strings.Contains(condition.Message, "morphs") {
		t.Errorf("the refusal %q does not name the definition", condition.Message)
	}
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

// onlyStoredVersionAnswers looks at a group whose webhook is down.
func onlyStoredVersionAnswers(t *testing.T, group *scenario.Group, before scenario.Snapshot, url string) {
	t.Helper()
	for i := range suite.cluster.Annex.Replicas {
		code, body := get(t, suite.cluster.AnnexConfig(t, i), "/apis/"+group.Name+"/v2/morphs")
		if code != 500 || !strings.Contains(body, "conversion webhook") || !strings.Contains(body, strings.TrimPrefix(url, "https://")) {
			t.Errorf("replica %d answers a list of v2 with %d %.300s, want 500 that names the webhook", i, code, body)
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
