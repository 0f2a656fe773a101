// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// testTimeout bounds every test that starts servers.
const testTimeout = 4 * time.Minute

func startHost(t *testing.T, e *Env, options HostOptions) *Host {
	t.Helper()
	begin := time.Now()
	host, err := e.StartHost(testContext(t), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("host ready after %s", time.Since(begin).Round(time.Millisecond))
	return host
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// TestHostServesKubectl starts etcd and kube-apiserver, uses them through
// kubectl and stops them.
func TestHostServesKubectl(t *testing.T) {
	e := ForTest(t)
	host := startHost(t, e, HostOptions{})
	kubectl, err := host.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	crd, err := GadgetYAML()
	if err != nil {
		t.Fatal(err)
	}
	kubectl.MustRunInput(t, crd, "apply", "-f", "-")
	kubectl.MustRun(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/gadgets.lab.annex.test")
	kubectl.MustRunInput(t, "{apiVersion: lab.annex.test/v1, kind: Gadget, metadata: {name: one}, spec: {color: red}}", "create", "-f", "-")
	if got, want := kubectl.MustRun(t, "get", "gdg", "-o", "name"), "gadget.lab.annex.test/one\n"; got != want {
		t.Errorf("kubectl get: %q, want %q", got, want)
	}

	result, err := kubectl.Run(testContext(t), "get", "gdg", "two")
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode != 1 || !strings.Contains(result.Stderr, "NotFound") {
		t.Errorf("kubectl get of a missing object: %+v, want exit code 1 and NotFound", result)
	}

	begin := time.Now()
	if err := host.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	t.Logf("host stopped after %s", time.Since(begin).Round(time.Millisecond))
	for _, process := range []*Process{host.Etcd.Process, host.APIServers[0].Process} {
		select {
		case <-process.Exited():
		default:
			t.Errorf("%s still runs after Stop", process.Name())
		}
	}
}

// TestKilledAPIServerComesBack kills kube-apiserver and finds the object again
// after the restart, and again after etcd was killed too.
func TestKilledAPIServerComesBack(t *testing.T) {
	ctx := testContext(t)
	e := ForTest(t)
	host := startHost(t, e, HostOptions{Etcd: EtcdOptions{TLS: true}})
	config, err := host.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	crd, err := PlanetCRD()
	if err != nil {
		t.Fatal(err)
	}
	if err := InstallCRD(ctx, config, crd); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	planets := client.Resource(PlanetResource())
	created, err := planets.Create(ctx, Object("Planet", "", "earth", map[string]any{"moons": int64(1)}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := host.APIServers[0]
	for name, victims := range map[string][]*Process{
		"kube-apiserver":          {server.Process},
		"kube-apiserver and etcd": {host.Etcd.Process, server.Process},
	} {
		for _, process := range victims {
			if err := process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := planets.Get(ctx, "earth", metav1.GetOptions{}); err == nil {
			t.Fatalf("the server answers after the end of %s", name)
		}
		begin := time.Now()
		for _, process := range victims {
			if err := process.Restart(ctx); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s restarted after %s", name, time.Since(begin).Round(time.Millisecond))
		got, err := planets.Get(ctx, "earth", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("after the restart of %s: %v", name, err)
		}
		if got.GetUID() != created.GetUID() {
			t.Errorf("after the restart of %s: UID %s, want %s", name, got.GetUID(), created.GetUID())
		}
	}
}
