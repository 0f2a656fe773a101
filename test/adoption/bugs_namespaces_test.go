// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"encoding/json"
	"testing"
)

// TestNamespaceDeletion deletes a namespace with objects that annex holds
// (kubernetes/kubernetes 119662): it waits for finalizers and ends, and no object
// is left or goes too early. The folder kill does it with annex down.
func TestNamespaceDeletion(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "spaces.annex.test", nil)
	const namespace = "doomed"
	group.FillNamespace(t, namespace)
	adopt(t, group)
	startControllerManager(t)
	cluster.DeleteNamespace(t, namespace)
	group.RemoveHold(t, namespace)
	group.WaitNamespaceGone(t, namespace)
	group.WaitRouted(t, true)
}

// TestAggregatedDiscoveryOfReplicas asks annex itself for discovery in the form
// that kube-apiserver and kube-controller-manager want.
func TestAggregatedDiscoveryOfReplicas(t *testing.T) {
	for i := range suite.cluster.Annex.Replicas {
		accept := map[string]string{"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
		code, body, headers := getWith(t, suite.cluster.AnnexConfig(t, i), "/apis", accept)
		var list struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal([]byte(body), &list); err != nil || code != 200 || list.Kind != "APIGroupDiscoveryList" {
			t.Errorf("replica %d answers %d %s: %.200s (%v), want an APIGroupDiscoveryList", i, code, headers.Get("Content-Type"), body, err)
		}
	}
}
