// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

const (
	// promptly bounds what has nothing to do with a sick annex. Alone it takes a tenth of that.
	promptly = 5 * time.Second
	// hangs bounds how long a request for a group of a paused annex takes: kube-apiserver
	// waits 60 s for an answer as long as it believes in the server.
	hangs = 62 * time.Second
)

// TestSickAnnex pauses all of annex, which is worse than ending it: connections
// stay open and nothing answers (argo-cd 22757, 19490). Everything that is not
// of the group works as before, and the group is refused quickly once it is known to be sick.
func TestSickAnnex(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "sick.annex.test", nil)
	group.Seed(t, 5, 2)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	adopt(t, group)
	group.MustBeAnnexed(t, before)
	kubectl, err := cluster.Host.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	resources := kubectl.MustRun(t, "api-resources", "--no-headers")
	resume := pauseAnnex(t)
	defer resume()
	others := func(when string) {
		t.Helper()
		for name, args := range map[string][]string{
			"get pods":      {"get", "pods", "--all-namespaces"},
			"apply":         {"apply", "-f", "-"},
			"api-resources": {"api-resources", "--no-headers"},
			"explain":       {"explain", "pods"},
		} {
			manifest := "{apiVersion: v1, kind: ConfigMap, metadata: {name: healthy, namespace: default}, data: {when: " + strings.ReplaceAll(when, " ", "-") + "}}"
			quickly(t, when+": kubectl "+name, promptly, func() { kubectl.MustRunInput(t, manifest, args...) })
		}
		quickly(t, when+": GET /openapi/v2", promptly, func() {
			if code, body := get(t, cluster.HostConfig(t, 0), "/openapi/v2"); code != 200 {
				t.Errorf("GET /openapi/v2: %d %.200s", code, body)
			}
		})
	}
	others("just paused")
	waitUnavailableService(t, "v1."+group.Name)
	if err := kubectl.ForgetDiscovery(); err != nil {
		t.Fatal(err)
	}
	others("known to be paused")
	quickly(t, "known to be paused: GET gadgets", promptly, func() { mustBeUnavailable(t, group) })

	resume()
	group.MustBeAnnexed(t, before)
	if err := kubectl.ForgetDiscovery(); err != nil {
		t.Fatal(err)
	}
	err = scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		result, err := kubectl.Run(ctx, "api-resources", "--no-headers")
		if err == nil && result.Stdout != resources {
			err = fmt.Errorf("kubectl api-resources: %s", result.Stderr)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// pauseAnnex pauses all replicas and returns how to undo it, once or twice.
func pauseAnnex(t *testing.T) func() {
	t.Helper()
	for _, server := range suite.cluster.Annex.Replicas {
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, server := range suite.cluster.Annex.Replicas {
			if err := server.Continue(); err != nil {
				t.Error(err)
			}
		}
	}
}

// waitUnavailableService waits until an APIService is known to be sick.
func waitUnavailableService(t *testing.T, name string) {
	t.Helper()
	client, err := aggregatorclient.NewForConfig(suite.cluster.HostConfig(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(scenario.Context(t), hangs)
	defer cancel()
	err = scenario.Poll(ctx, func(ctx context.Context) error {
		service, err := client.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range service.Status.Conditions {
			if condition.Type == apiregistrationv1.Available && condition.Status == apiregistrationv1.ConditionFalse {
				t.Logf("unavailable after %s: %s", time.Since(begin).Round(time.Millisecond), condition.Message)
				return nil
			}
		}
		return fmt.Errorf("conditions %v", service.Status.Conditions)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplicaStopsUnderLoad stops one replica with SIGTERM while clients write
// and watch (kubernetes/kubernetes 141318): no other request fails, no event is lost.
func TestReplicaStopsUnderLoad(t *testing.T) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	group := cluster.NewGroup(t, "drained.annex.test", nil)
	group.Seed(t, 30, 5)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	adopt(t, group)
	servers := []*rest.Config{cluster.HostConfig(t, 0), cluster.HostConfig(t, 1)}
	recorders := []*scenario.Recorder{group.Record(t, servers[0], group.Gadgets("v1")), group.Record(t, servers[1], group.Gadgets("v1"))}
	raw := []*scenario.RawWatch{group.RawWatch(t, servers[0], group.Gadgets("v1")), group.RawWatch(t, servers[1], group.Gadgets("v1"))}
	writers := group.StartWriters(t, 4, servers...)
	writers.WaitWrites(t, 40)
	for _, server := range cluster.Annex.Replicas {
		restartReplica(t, server)
		writers.WaitWrites(t, 40)
	}
	writers.Stop()
	t.Log(writers.Summary())
	writers.MustHaveNoErrors(t)
	writers.MustBeKept(t, group)
	before.MustEqual(t, group.Snapshot(t, servers[0]))
	for _, recorder := range recorders {
		recorder.MustBeQuietAndAlive(t)
		t.Log(recorder.Summary())
	}
	for _, w := range raw {
		if err := w.MustEnd(t, watchEnd); err != nil {
			t.Errorf("%s: a drained watch ends with %v, want no error", w, err)
		}
		if w.Count(watch.Added) == 0 {
			t.Errorf("%s has seen nothing", w)
		}
		// A replica that has just started knows no events of before.
		if err := w.Resume(t); err != nil && !apierrors.IsResourceExpired(err) {
			t.Errorf("%s cannot go on: %v, want no error or 410", w, err)
		}
	}
}

func restartReplica(t *testing.T, server *env.AnnexServer) {
	t.Helper()
	begin := time.Now()
	if err := server.Restart(scenario.Context(t)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s stopped and ready again after %s", server.Name(), time.Since(begin).Round(time.Millisecond))
}
