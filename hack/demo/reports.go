// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// report is what a policy engine found about one Pod: 6 to 17 results, of which
// one in 50 reports has a failed one.
func (g *generator) report(i int) *unstructured.Unstructured {
	id := types.UID(fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", g.random.Uint32(), g.random.IntN(1<<16),
		g.random.IntN(1<<12), g.random.IntN(1<<12), g.random.Uint64()&(1<<48-1)))
	count := 6 + g.random.IntN(12)
	results := make([]any, count)
	for n := range results {
		results[n] = g.result(n, "pass")
	}
	worst, failed := "pass", int64(0)
	if i%50 == 11 {
		worst, failed = "fail", 1
		results[0] = g.result(0, "fail")
	}
	namespace := namespaceOf(i)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "wgpolicyk8s.io/v1alpha2",
		"kind":       "PolicyReport",
		"scope": map[string]any{
			"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "uid": string(id),
			"name": fmt.Sprintf("%s-%05d", g.pick("api", "web", "worker", "cache"), i),
		},
		"results": results,
		"summary": map[string]any{
			"pass": int64(count) - failed, "fail": failed, "warn": int64(0), "error": int64(0), "skip": int64(0),
		},
	}}
	object.SetName(string(id))
	object.SetNamespace(namespace)
	object.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "kyverno", worstLabel: worst})
	return object
}

func (g *generator) result(n int, outcome string) map[string]any {
	policies := [...]string{
		"disallow-latest-tag", "require-requests-limits", "disallow-privileged-containers", "require-run-as-nonroot",
		"restrict-image-registries", "require-labels", "disallow-host-path", "require-probes", "restrict-seccomp",
	}
	policy := policies[n%len(policies)]
	return map[string]any{
		"policy": policy, "rule": fmt.Sprintf("autogen-%s-%d", policy, n), "result": outcome, "scored": true, "source": "kyverno",
		"severity":   g.pick("low", "medium", "high"),
		"category":   "Pod Security Standards (Baseline)",
		"message":    fmt.Sprintf("validation rule '%s' passed for container %d of the Pod", policy, n),
		"properties": map[string]any{"process": "background scan"},
		"timestamp":  map[string]any{"seconds": g.now.Unix() - int64(g.random.IntN(1e6)), "nanos": int64(0)},
	}
}
