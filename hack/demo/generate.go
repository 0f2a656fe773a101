// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// namespaces is over how many namespaces objects are spread.
	namespaces = 20
	// phaseLabel is the label by which people list workflows.
	phaseLabel = "workflows.argoproj.io/phase"
	// worstLabel is the label by which people list reports.
	worstLabel = "demo.kubeannex.io/worst"
)

// generator makes up objects of the size and shape that Argo Workflows and Kyverno
// write. The same seed gives the same objects.
type generator struct {
	random *rand.Rand
	// now is when the last of the objects ended.
	now time.Time
}

func newGenerator(seed uint64) *generator {
	return &generator{random: rand.New(rand.NewPCG(seed, seed)), now: time.Date(2026, time.March, 2, 8, 0, 0, 0, time.UTC)}
}

func (g *generator) pick(values ...string) string { return values[g.random.IntN(len(values))] }

func (g *generator) at(ago time.Duration) string { return g.now.Add(-ago).Format(time.RFC3339) }

func namespaceOf(i int) string { return fmt.Sprintf("team-%02d", i%namespaces) }

// workflow is a run of a pipeline with 4 to 12 steps, as the workflow controller
// leaves it. One in 40 has failed, one in 100 is running.
func (g *generator) workflow(i int) *unstructured.Unstructured {
	name := fmt.Sprintf("%s-%05d", g.pick("train-model", "nightly-etl", "build-image", "render", "backtest"), i)
	phase := "Succeeded"
	switch {
	case i%100 == 7:
		phase = "Running"
	case i%40 == 3:
		phase = "Failed"
	}
	steps := 4 + g.random.IntN(9)
	age := time.Duration(i) * time.Minute
	nodes := map[string]any{name: g.dag(name, phase, age, steps)}
	for step := range steps {
		node := g.step(name, step, age, phase)
		nodes[node["id"].(string)] = node
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1",
		"kind":       "Workflow",
		"spec": map[string]any{
			"entrypoint":         "main",
			"serviceAccountName": "pipeline",
			"arguments":          map[string]any{"parameters": g.parameters()},
			"templates":          []any{g.dagTemplate(steps), g.containerTemplate()},
			"ttlStrategy":        map[string]any{"secondsAfterCompletion": int64(86400)},
			"podGC":              map[string]any{"strategy": "OnPodCompletion"},
		},
		"status": map[string]any{
			"phase":             phase,
			"startedAt":         g.at(age + time.Duration(steps)*time.Minute),
			"progress":          fmt.Sprintf("%d/%d", steps, steps),
			"nodes":             nodes,
			"resourcesDuration": map[string]any{"cpu": int64(60 * steps), "memory": int64(120 * steps)},
			"conditions":        []any{map[string]any{"type": "PodRunning", "status": "False"}},
		},
	}}
	if phase != "Running" {
		object.Object["status"].(map[string]any)["finishedAt"] = g.at(age)
	}
	object.SetName(name)
	object.SetNamespace(namespaceOf(i))
	object.SetLabels(map[string]string{
		phaseLabel:                        phase,
		"workflows.argoproj.io/completed": fmt.Sprint(phase != "Running"),
	})
	return object
}

func (g *generator) parameters() []any {
	return []any{
		map[string]any{"name": "repository", "value": "https://git.example.test/" + g.pick("ml", "data", "web") + "/pipeline.git"},
		map[string]any{"name": "revision", "value": fmt.Sprintf("%040x", g.random.Uint64())},
		map[string]any{"name": "dataset", "value": fmt.Sprintf("s3://data/%s/%d", g.pick("raw", "clean"), g.random.IntN(1e6))},
	}
}

func (g *generator) dagTemplate(steps int) map[string]any {
	tasks := make([]any, steps)
	for step := range steps {
		task := map[string]any{
			"name":     stepName(step),
			"template": "work",
			"arguments": map[string]any{"parameters": []any{
				map[string]any{"name": "shard", "value": fmt.Sprint(step)},
				map[string]any{"name": "batch", "value": fmt.Sprint(g.random.IntN(4096))},
			}},
		}
		if step > 0 {
			task["dependencies"] = []any{stepName(step - 1)}
		}
		tasks[step] = task
	}
	return map[string]any{"name": "main", "dag": map[string]any{"tasks": tasks}}
}

func (g *generator) containerTemplate() map[string]any {
	return map[string]any{
		"name":   "work",
		"inputs": map[string]any{"parameters": []any{map[string]any{"name": "shard"}, map[string]any{"name": "batch"}}},
		"container": map[string]any{
			"image":   fmt.Sprintf("registry.example.test/pipeline:%d.%d", g.random.IntN(9), g.random.IntN(30)),
			"command": []any{"python", "-m", "pipeline.step"},
			"args":    []any{"--shard={{inputs.parameters.shard}}", "--batch={{inputs.parameters.batch}}", "--dataset={{workflow.parameters.dataset}}"},
			"resources": map[string]any{
				"requests": map[string]any{"cpu": "500m", "memory": "1Gi"},
				"limits":   map[string]any{"memory": "2Gi"},
			},
			"env": []any{map[string]any{"name": "ATTEMPT", "value": fmt.Sprint(g.random.IntN(3))}},
		},
		"retryStrategy": map[string]any{"limit": int64(2), "retryPolicy": "OnFailure"},
	}
}

func stepName(step int) string { return fmt.Sprintf("step-%d", step) }

func (g *generator) dag(name, phase string, age time.Duration, steps int) map[string]any {
	return map[string]any{
		"id": name, "name": name, "displayName": name, "type": "DAG",
		"templateName": "main", "templateScope": "local/" + name, "phase": phase,
		"startedAt": g.at(age + time.Duration(steps)*time.Minute), "finishedAt": g.at(age),
		"progress":      fmt.Sprintf("%d/%d", steps, steps),
		"outboundNodes": []any{fmt.Sprintf("%s-%010d", name, steps)},
	}
}

func (g *generator) step(name string, step int, age time.Duration, phase string) map[string]any {
	node := map[string]any{
		"id":   fmt.Sprintf("%s-%010d-%08x", name, step, g.random.Uint32()),
		"name": name + "." + stepName(step), "displayName": stepName(step), "type": "Pod",
		"templateName": "work", "templateScope": "local/" + name, "boundaryID": name,
		"phase":     "Succeeded",
		"startedAt": g.at(age + time.Duration(step+1)*time.Minute), "finishedAt": g.at(age + time.Duration(step)*time.Minute),
		"progress": "1/1", "hostNodeName": fmt.Sprintf("node-%03d", g.random.IntN(120)),
		"resourcesDuration": map[string]any{"cpu": int64(g.random.IntN(600)), "memory": int64(g.random.IntN(1200))},
		"inputs": map[string]any{"parameters": []any{
			map[string]any{"name": "shard", "value": fmt.Sprint(step)},
			map[string]any{"name": "batch", "value": fmt.Sprint(g.random.IntN(4096))},
		}},
		"outputs": map[string]any{"exitCode": "0", "artifacts": []any{map[string]any{
			"name": "main-logs", "s3": map[string]any{"key": fmt.Sprintf("logs/%s/%s/main.log", name, stepName(step))},
		}}},
	}
	if phase == "Failed" && step == 0 {
		node["phase"], node["message"] = "Failed", "Error (exit code 1): shard is not readable"
	}
	return node
}
