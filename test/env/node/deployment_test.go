// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const webManifest = `
apiVersion: v1
kind: Secret
metadata: {name: web}
stringData: {word: first, dir: /tmp}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {color: blue}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 8000, targetPort: http}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 20
      securityContext: {runAsNonRoot: true, runAsUser: 1234, runAsGroup: 2345, fsGroup: 3456}
      containers:
      - name: web
        image: pod
        command: [pod]
        args: ["--listen=$(POD_IP):8000", "$$(NOT) $(UNKNOWN) $(SENTENCE)"]
        env:
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: WORD, valueFrom: {secretKeyRef: {name: web, key: word}}}
        - {name: COLOR, valueFrom: {configMapKeyRef: {name: web, key: color}}}
        - {name: NOTHING, valueFrom: {configMapKeyRef: {name: web, key: none, optional: true}}}
        - {name: SENTENCE, value: "$(WORD) $(COLOR)"}
        - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
        - {name: ROLLOUT, value: "1"}
        resources: {limits: {memory: 1.5Gi}}
        ports: [{name: http, containerPort: 8000}]
        readinessProbe: {periodSeconds: 1, httpGet: {port: http, path: /healthy}}
        lifecycle: {preStop: {sleep: {seconds: 2}}}
        volumeMounts:
        - {name: word, mountPath: /etc/web/word}
        - {name: scratch, mountPath: /scratch}
      volumes:
      - {name: word, secret: {secretName: web, defaultMode: 0400, items: [{key: word, path: deep/word}]}}
      - {name: scratch, emptyDir: {}}
`

// TestDeployment runs a Deployment behind a Service: what its processes get is
// what the manifest says, and a rolling update fails no request.
func TestDeployment(t *testing.T) {
	namespace := newNamespace(t)
	apply(t, namespace, webManifest)
	suite.kubectl.MustRun(t, "rollout", "status", "--namespace", namespace, "--timeout=60s", "deployment/web")

	first := pods(t, namespace, "web")
	for i := range first {
		got := strings.Split(mustAsk(t, first[i].Status.PodIP, "/env", nil), "\n")
		for _, want := range []string{
			"ARGS=pod --listen=" + first[i].Status.PodIP + ":8000 $(NOT) $(UNKNOWN) first blue",
			"UID=1234", "GID=2345", "WORD=first", "COLOR=blue", "SENTENCE=first blue", "MEMORY=1536",
			"HOSTNAME=" + first[i].Name,
		} {
			if !slices.Contains(got, want) {
				t.Errorf("a process lacks %q among %q", want, got)
			}
		}
	}
	service, err := suite.client.CoreV1().Services(namespace).Get(testContext(t), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := func() []string {
		seen := map[string]bool{}
		for range 10 {
			for line := range strings.Lines(mustAsk(t, service.Spec.ClusterIP, "/env", nil)) {
				if name, ok := strings.CutPrefix(strings.TrimSpace(line), "HOSTNAME="); ok {
					seen[name] = true
				}
			}
		}
		return slices.Sorted(maps.Keys(seen))
	}
	eventually(t, func(ctx context.Context) error {
		_, err := ask(ctx, service.Spec.ClusterIP, "/env", nil)
		return err
	})
	eventually(t, func(context.Context) error {
		if got := names(); len(got) != 2 {
			return fmt.Errorf("the Service leads to %v, want both pods", got)
		}
		return nil
	})

	t.Run("Secret", func(t *testing.T) { checkSecretFollows(t, namespace, service.Spec.ClusterIP) })
	t.Run("Rollout", func(t *testing.T) { checkRollout(t, namespace, service.Spec.ClusterIP) })
	for _, name := range names() {
		if slices.ContainsFunc(first, func(p corev1.Pod) bool { return p.Name == name }) {
			t.Errorf("pod %s still answers after the rolling update", name)
		}
	}
	log := suite.kubectl.MustRun(t, "logs", "--namespace", namespace, "deployment/web", "--tail=1")
	if !strings.HasPrefix(log, "+ pod --listen=") {
		t.Errorf("kubectl logs: %q, want the command", log)
	}
	suite.kubectl.MustRun(t, "delete", "deployment", "web", "--namespace", namespace, "--cascade=foreground", "--timeout=60s")
	if left := pods(t, namespace, "web"); len(left) > 0 {
		t.Errorf("%d pods are left", len(left))
	}
}

// checkSecretFollows changes a mounted Secret.
func checkSecretFollows(t *testing.T, namespace, ip string) {
	query := url.Values{"path": {"/etc/web/word/deep/word"}}
	if got := mustAsk(t, ip, "/file", query); got != "first" {
		t.Errorf("the mounted file has %q, want first", got)
	}
	suite.kubectl.MustRun(t, "patch", "secret", "web", "--namespace", namespace, "--type=merge", "-p", `{"stringData":{"word":"second"}}`)
	eventually(t, func(ctx context.Context) error {
		got, err := ask(ctx, ip, "/file", query)
		if err == nil && got != "second" {
			err = fmt.Errorf("the mounted file has %q", got)
		}
		return err
	})
	if _, err := ask(testContext(t), ip, "/file", url.Values{"path": {"/etc/web/word/dir"}}); err == nil {
		t.Error("a key that is not listed is in the volume")
	}
}

// checkRollout replaces the pods while it sends requests over new connections.
func checkRollout(t *testing.T, namespace, ip string) {
	ctx, stop := context.WithCancel(testContext(t))
	var requests int
	failed := make(chan error, 1)
	go func() {
		var errs []error
		for ctx.Err() == nil {
			if _, err := ask(context.WithoutCancel(ctx), ip, "/env", nil); err != nil {
				errs = append(errs, err)
			}
			requests++
		}
		failed <- errors.Join(errs...)
	}()
	suite.kubectl.MustRun(t, "set", "env", "--namespace", namespace, "deployment/web", "ROLLOUT=2")
	suite.kubectl.MustRun(t, "rollout", "status", "--namespace", namespace, "--timeout=60s", "deployment/web")
	eventually(t, func(context.Context) error {
		if got := len(pods(t, namespace, "web")); got != 2 {
			return fmt.Errorf("%d pods, want 2", got)
		}
		return nil
	})
	stop()
	if err := <-failed; err != nil {
		t.Errorf("requests failed during the rolling update: %v", err)
	}
	t.Logf("%d requests during the rolling update", requests)
}
