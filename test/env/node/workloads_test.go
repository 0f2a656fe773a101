// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestJobs runs Jobs that succeed and fail and finds their exit code and last words.
func TestJobs(t *testing.T) {
	namespace := newNamespace(t)
	job := func(name string, args string) string {
		return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s}
spec:
  backoffLimit: 0
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      restartPolicy: Never
      containers:
      - {name: %[1]s, image: pod, command: [/usr/local/bin/pod], args: [%[2]s], terminationMessagePolicy: FallbackToLogsOnError}
---`, name, args)
	}
	apply(t, namespace, job("good", `"--message=all done"`)+job("bad", `"--exit=7", "--message=no luck"`)+job("log", `"--append=/no/such/file"`))
	suite.kubectl.MustRun(t, "wait", "--namespace", namespace, "--timeout=60s", "--for=condition=Complete", "job/good")
	suite.kubectl.MustRun(t, "wait", "--namespace", namespace, "--timeout=60s", "--for=condition=Failed", "job/bad", "job/log")
	for name, want := range map[string]struct {
		code    int32
		message string
	}{
		"good": {0, "all done"},
		"bad":  {7, "no luck"},
		"log":  {100, "no such file or directory"},
	} {
		for _, live := range pods(t, namespace, name) {
			end := live.Status.ContainerStatuses[0].State.Terminated
			if end == nil || end.ExitCode != want.code || !strings.Contains(end.Message, want.message) {
				t.Errorf("job %s ended with %+v, want %+v", name, end, want)
			}
		}
	}
}

const storeManifest = `
apiVersion: v1
kind: Service
metadata: {name: store}
spec: {clusterIP: None, selector: {app: store}, publishNotReadyAddresses: true, ports: [{name: http, port: 8000}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  replicas: 2
  serviceName: store
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      securityContext: {runAsUser: 1234, fsGroup: 3456}
      initContainers:
      - {name: seed, image: pod, command: [pod, --append=/var/lib/store/seeds], volumeMounts: [{name: data, mountPath: /var/lib/store}]}
      containers:
      - name: store
        image: pod
        command: [pod, "--listen=$(POD_IP):8000", --append=/data/starts]
        env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
        readinessProbe: {periodSeconds: 1, tcpSocket: {port: 8000}}
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
`

// TestStatefulSet runs members with volumes, which outlive a pod, and names.
func TestStatefulSet(t *testing.T) {
	namespace := newNamespace(t)
	apply(t, namespace, storeManifest)
	suite.kubectl.MustRun(t, "rollout", "status", "--namespace", namespace, "--timeout=60s", "statefulset/store")
	suite.kubectl.MustRun(t, "delete", "pod", "store-0", "--namespace", namespace, "--timeout=60s")
	suite.kubectl.MustRun(t, "rollout", "status", "--namespace", namespace, "--timeout=60s", "statefulset/store")
	addresses := map[string]string{}
	for _, live := range pods(t, namespace, "store") {
		addresses[live.Name] = live.Status.PodIP
	}
	for _, path := range []string{"/data/seeds", "/data/starts"} {
		got := mustAsk(t, addresses["store-0"], "/file", url.Values{"path": {path}})
		if want := strings.Repeat("store-0\n", 2); got != want {
			t.Errorf("%s of store-0 has %q, want %q", path, got, want)
		}
	}
	for _, name := range []string{"store-0.store", "store-0.store." + namespace + ".svc", "store-0.store." + namespace + ".svc.cluster.local"} {
		eventually(t, func(ctx context.Context) error {
			got, err := ask(ctx, addresses["store-1"], "/resolve", url.Values{"name": {name}})
			if want := "[" + addresses["store-0"] + "] <nil>\n"; err == nil && got != want {
				err = fmt.Errorf("%s is %q, want %q", name, got, want)
			}
			return err
		})
	}
	claims := suite.kubectl.MustRun(t, "get", "pvc", "--namespace", namespace, "-o", "jsonpath={range .items[*]}{.status.phase};{end}")
	if claims != strings.Repeat("Bound;", 2) {
		t.Errorf("claims are %q, want both bound", claims)
	}
}

const sickManifest = `
apiVersion: v1
kind: Pod
metadata: {name: sick, labels: {app: sick}}
spec:
  terminationGracePeriodSeconds: 30
  containers:
  - name: sick
    image: pod
    command: [pod, "--listen=$(POD_IP):8000"]
    env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    startupProbe: {periodSeconds: 1, failureThreshold: 30, httpGet: {port: 8000, path: /healthy}}
    livenessProbe: {periodSeconds: 1, failureThreshold: 2, httpGet: {port: 8000, path: /healthy}}
    lifecycle: {preStop: {httpGet: {port: 8000, path: "/print?text=last"}}}
`

// TestLiveness restarts a container that fails its probe, and ends it with its hook.
func TestLiveness(t *testing.T) {
	namespace := newNamespace(t)
	apply(t, namespace, sickManifest)
	suite.kubectl.MustRun(t, "wait", "--namespace", namespace, "--timeout=60s", "--for=condition=Ready", "pod/sick")
	ip := pods(t, namespace, "sick")[0].Status.PodIP
	mustAsk(t, ip, "/sicken", nil)
	eventually(t, func(ctx context.Context) error {
		live, err := suite.client.CoreV1().Pods(namespace).Get(ctx, "sick", metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := live.Status.ContainerStatuses[0]
		if status.RestartCount != 1 || !status.Ready || live.Status.PodIP != ip {
			return fmt.Errorf("the status is %+v", status)
		}
		if status.LastTerminationState.Terminated == nil {
			return errors.New("the status does not tell of the first end")
		}
		return nil
	})
	suite.kubectl.MustRun(t, "delete", "pod", "sick", "--namespace", namespace, "--timeout=60s")
	logs, err := suite.node.Logs(namespace, "sick")
	if err != nil {
		t.Fatal(err)
	}
	want := "+ pod --listen=" + ip + ":8000\nlast\nSIGTERM\n"
	if got := logs[namespace+"_sick_sick"]; got != want+want {
		t.Errorf("the log is %q, want %q twice", got, want)
	}
}

// TestWaits starts a pod that lacks a Secret and gives it the Secret.
func TestWaits(t *testing.T) {
	namespace := newNamespace(t)
	apply(t, namespace, `
apiVersion: v1
kind: Pod
metadata: {name: patient, labels: {app: patient}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {runAsUser: 1234, runAsNonRoot: true}
  containers:
  - {name: patient, image: pod, command: [pod, --message=here], volumeMounts: [{name: late, mountPath: /late}]}
  volumes: [{name: late, secret: {secretName: late}}]
`)
	eventually(t, func(ctx context.Context) error {
		live, err := suite.client.CoreV1().Pods(namespace).Get(ctx, "patient", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, status := range live.Status.ContainerStatuses {
			if status.State.Waiting != nil && strings.Contains(status.State.Waiting.Message, `secret "late" not found`) {
				return nil
			}
		}
		return fmt.Errorf("the status is %+v", live.Status)
	})
	suite.kubectl.MustRun(t, "create", "secret", "generic", "late", "--namespace", namespace, "--from-literal=a=b")
	suite.kubectl.MustRun(t, "wait", "--namespace", namespace, "--timeout=60s", "--for=jsonpath={.status.phase}="+string(corev1.PodSucceeded), "pod/patient")
}
