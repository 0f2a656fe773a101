// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeannex/annex/test/adoption/scenario"
)

// TestRoutesStay does what took APIServices back in other products
// (kyverno/reports-server 343): after each step every kube-apiserver still sends
// the group to annex, and the objects are the same.
func TestRoutesStay(t *testing.T) {
	cluster := suite.cluster
	cluster.HealAfter(t)
	group := cluster.NewGroup(t, "routes.annex.test", nil)
	group.Seed(t, 20, 5)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	adopt(t, group)
	group.MustBeAnnexed(t, before)
	routes := group.APIServices(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"kube-apiservers restart", func(t *testing.T) {
			for _, server := range cluster.Host.APIServers {
				// Stopped by SIGTERM it would wait a minute for the watches that it passes on.
				if err := server.Kill(); err != nil {
					t.Fatal(err)
				}
				if err := server.Restart(scenario.Context(t)); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"the definition is edited", func(t *testing.T) { editDescription(t, group, "Edited while annexed.") }},
		{"annex is rolled", func(t *testing.T) { rollUnderReads(t, group) }},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.do(t)
			group.MustBeAnnexed(t, before)
			if diff := cmp.Diff(routes, group.APIServices(t)); diff != "" {
				t.Errorf("APIServices (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("the guard refuses", func(t *testing.T) {
		mustBeGuarded(t, group)
		if diff := cmp.Diff(routes, group.APIServices(t)); diff != "" {
			t.Errorf("APIServices (-before +after):\n%s", diff)
		}
	})
	for name, take := range map[string]func(context.Context, apiServices) error{
		"the guard is lifted and the APIService deleted":    deleteRoute(group),
		"the guard is lifted and the APIService made local": patchRoute(group, makeLocal),
	} {
		t.Run(name, func(t *testing.T) {
			begin := liftGuard(t, take)
			mustBeTakenBack(t, group)
			t.Logf("taken back after %s", time.Since(begin).Round(time.Millisecond))
			group.MustBeAnnexed(t, before)
			mustBeGuarded(t, group)
		})
	}
}

// editDescription changes the schema of the gadgets in the host's definition.
func editDescription(t *testing.T, group *scenario.Group, text string) {
	t.Helper()
	client, err := apiextensionsclient.NewForConfig(suite.cluster.HostConfig(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	path := "/spec/versions/0/schema/openAPIV3Schema/properties/spec/description"
	patch := fmt.Sprintf(`[{"op":"replace","path":%q,"value":%q}]`, path, text)
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Patch(scenario.Context(t), "gadgets."+group.Name,
		types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// rollUnderReads restarts the replicas one after the other, as a Deployment
// does, while a client reads: no read may be answered by the host's copies. A
// connection that a closing listener had in its backlog ends one read with 503 at
// most for each replica: the environment's load balancer knows nothing of readiness.
func rollUnderReads(t *testing.T, group *scenario.Group) {
	t.Helper()
	ctx, cancel := context.WithCancel(scenario.Context(t))
	defer cancel()
	client := group.HostClient(t, group.Gadgets("v1")).Namespace(group.Namespaces[0])
	done := make(chan error, 1)
	var reads, unavailable atomic.Int64
	go func() {
		for ctx.Err() == nil {
			list, err := client.List(ctx, metav1.ListOptions{})
			if ctx.Err() != nil {
				break
			}
			if apierrors.IsServiceUnavailable(err) && int(unavailable.Add(1)) <= len(suite.cluster.Annex.Replicas) {
				continue
			}
			if err != nil {
				done <- fmt.Errorf("read %d: %w", reads.Load(), err)
				return
			}
			if revision := list.GetResourceVersion(); !scenario.FromAnnex(revision) {
				done <- fmt.Errorf("read %d: revision %s is the cluster's", reads.Load(), revision)
				return
			}
			reads.Add(1)
		}
		done <- nil
	}()
	for _, server := range suite.cluster.Annex.Replicas {
		waitReads(t, &reads, done)
		if err := server.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	waitReads(t, &reads, done)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("%d reads during the roll, %d answered 503", reads.Load(), unavailable.Load())
}

// waitReads waits for ten more reads, and ends the test when one has failed.
func waitReads(t *testing.T, reads *atomic.Int64, done <-chan error) {
	t.Helper()
	target := reads.Load() + 10
	err := scenario.Poll(scenario.Context(t), func(context.Context) error {
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
		if got := reads.Load(); got < target {
			return fmt.Errorf("%d of %d reads", got, target)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
