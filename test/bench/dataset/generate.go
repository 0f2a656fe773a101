// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// identityLabels, results and steps give objects the sizes of Kind.Bytes.
	identityLabels = 8
	results        = 357
	steps          = 785
)

// generator makes up one object.
type generator struct {
	shape  Shape
	random *rand.Rand
	i      int
}

// Object is object i of a kind, ready to be created. It depends on nothing but the
// shape, the group, the kind and i, so that objects can be made in any order. Every
// i from 0 on is valid. The caller owns it.
func (s Shape) Object(group string, kind Kind, i int) *unstructured.Unstructured {
	const kindBits = 56
	stream := uint64(kind)<<kindBits | uint64(i)
	g := &generator{shape: s, random: rand.New(rand.NewPCG(s.Seed, stream)), i: i}
	object := &unstructured.Unstructured{Object: g.content(kind)}
	object.SetAPIVersion(group + "/" + Version)
	object.SetKind(kind.Name())
	object.SetName(ObjectName(kind, i))
	object.SetNamespace(NamespaceName(s.Namespace(i)))
	object.SetLabels(map[string]string{
		AppLabel: AppName(s.App(i)), NodeLabel: NodeName(s.Node(i)), TeamLabel: NamespaceName(s.Namespace(i)),
	})
	return object
}

// JSON is object i of a kind as the body of a request.
func (s Shape) JSON(group string, kind Kind, i int) ([]byte, error) {
	body, err := s.Object(group, kind, i).MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", ObjectName(kind, i), err)
	}
	return body, nil
}

func (g *generator) content(kind Kind) map[string]any {
	switch kind {
	case Reports:
		return g.report()
	case Flows:
		return g.flow()
	default:
		return g.endpoint()
	}
}

func (g *generator) pick(values ...string) string { return values[g.random.IntN(len(values))] }

// at is a time of the last weeks before a fixed day.
func (g *generator) at() string {
	const fortnight = 14 * 24 * 3600
	day := time.Date(2026, time.March, 2, 8, 0, 0, 0, time.UTC)
	return day.Add(-time.Duration(g.random.IntN(fortnight)) * time.Second).Format(time.RFC3339)
}

// hex is a digest-like text of n times 16 digits.
func (g *generator) hex(n int) string {
	var text strings.Builder
	for range n {
		fmt.Fprintf(&text, "%016x", g.random.Uint64())
	}
	return text.String()
}

func (g *generator) node() string { return NodeName(g.shape.Node(g.i)) }

func (g *generator) endpoint() map[string]any {
	app := AppName(g.shape.App(g.i))
	labels := make([]any, identityLabels)
	for n := range labels {
		labels[n] = fmt.Sprintf("k8s:platform.example.test/%s=%s", g.pick("part-of", "component", "zone", "release"), g.pick("frontend", "backend", "batch", "cache"))
	}
	node := g.shape.Node(g.i)
	return map[string]any{
		"spec": map[string]any{
			"nodeName": g.node(),
			"hostIP":   fmt.Sprintf("172.16.%d.%d", node>>8&0xff, node&0xff),
			"ip":       fmt.Sprintf("10.%d.%d.%d", g.i>>16&0xff, g.i>>8&0xff, g.i&0xff),
			"mac":      fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", g.i>>24&0xff, g.i>>16&0xff, g.i>>8&0xff, g.i&0xff, g.random.IntN(1<<8)),
			"identity": int64(g.random.IntN(1 << 16)), "identityLabels": labels,
			"serviceAccount": app + "-runner",
			"ports": []any{
				map[string]any{"name": "http", "protocol": "TCP", "port": int64(8080)},
				map[string]any{"name": "metrics", "protocol": "TCP", "port": int64(9090)},
			},
		},
		"status": map[string]any{
			"state": g.pick("ready", "ready", "ready", "regenerating"), "health": g.pick("ok", "ok", "warning"),
			"lastSeen": g.at(), "policyRevision": fmt.Sprint(g.random.IntN(1 << 16)),
		},
	}
}

func (g *generator) report() map[string]any {
	found := make([]any, results)
	counts := map[string]any{"pass": int64(0), "fail": int64(0), "warn": int64(0)}
	for n := range found {
		result := g.pick("pass", "pass", "pass", "fail", "warn")
		counts[result] = counts[result].(int64) + 1
		found[n] = map[string]any{
			"policy":   g.pick("require-run-as-nonroot", "disallow-host-path", "restrict-image-registries", "require-requests-limits"),
			"rule":     fmt.Sprintf("check-%03d", n),
			"category": g.pick("Pod Security Standards (Baseline)", "Pod Security Standards (Restricted)", "Best Practices"),
			"severity": g.pick("low", "medium", "high", "critical"),
			"result":   result,
			"message":  fmt.Sprintf("rule check-%03d: the field %s of container %d is %s", n, g.pick("securityContext", "resources.limits", "image"), g.random.IntN(4), g.pick("set", "missing", "not allowed")),
			"resource": fmt.Sprintf("Pod/%s-%s", AppName(g.random.IntN(Apps)), g.hex(1)),
			"digest":   "sha256:" + g.hex(1),
		}
	}
	return map[string]any{
		"spec":    map[string]any{"nodeName": g.node(), "scanner": g.pick("kube-bench", "policy", "image")},
		"summary": counts, "results": found,
	}
}

func (g *generator) flow() map[string]any {
	ran := make(map[string]any, steps)
	for n := range steps {
		id := fmt.Sprintf("step-%03d-%s", n, g.hex(1))
		ran[id] = g.step(id, n)
	}
	return map[string]any{
		"spec": map[string]any{
			"nodeName": g.node(), "entrypoint": "main", "serviceAccountName": "pipeline",
			"image": fmt.Sprintf("registry.example.test/pipeline:%d.%d", g.random.IntN(9), g.random.IntN(30)),
		},
		"status": map[string]any{
			"phase": g.pick("Succeeded", "Succeeded", "Running", "Failed"), "startedAt": g.at(),
			"progress": fmt.Sprintf("%d/%d", steps, steps), "steps": ran,
		},
	}
}

func (g *generator) step(id string, n int) map[string]any {
	return map[string]any{
		"id": id, "name": fmt.Sprintf("main.stage-%d.step-%03d", n%7, n), "template": g.pick("extract", "train", "render", "publish"),
		"phase": g.pick("Succeeded", "Succeeded", "Succeeded", "Failed"), "startedAt": g.at(), "finishedAt": g.at(),
		"host": NodeName(g.random.IntN(g.shape.Nodes)), "message": g.pick("", "Error (exit code 1)", "retried after eviction"),
		"inputs": []any{
			map[string]any{"name": "shard", "value": fmt.Sprint(n)},
			map[string]any{"name": "dataset", "value": fmt.Sprintf("s3://data/%s/%s", g.pick("raw", "clean"), g.hex(2))},
		},
		"outputs": []any{
			map[string]any{"name": "exit-code", "value": "0"},
			map[string]any{"name": "logs", "value": fmt.Sprintf("s3://logs/%s/main.log", id)},
		},
	}
}
