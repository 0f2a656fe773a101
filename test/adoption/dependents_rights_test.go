// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

// narrow leaves the controller nothing but one group and ConfigMaps, with these
// verbs, until the end of the test.
func narrow(t *testing.T, group *scenario.Group, verbs ...string) {
	t.Helper()
	roles := suite.cluster.HostKube(t).RbacV1().ClusterRoles()
	change := func(ctx context.Context, rules []rbacv1.PolicyRule) (before []rbacv1.PolicyRule) {
		t.Helper()
		role, err := roles.Get(ctx, "annex-controller:adopted-groups", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before, role.Rules = role.Rules, rules
		if _, err := roles.Update(ctx, role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		return before
	}
	before := change(scenario.Context(t), []rbacv1.PolicyRule{
		{APIGroups: []string{group.Name}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs},
	})
	t.Cleanup(func() { change(context.WithoutCancel(t.Context()), before) })
	for server := range suite.cluster.Host.APIServers {
		waitForbidden(t, server)
	}
}

// waitForbidden waits until a kube-apiserver knows the rights that the controller has lost.
func waitForbidden(t *testing.T, server int) {
	t.Helper()
	config, err := suite.cluster.Host.ConfigFor(server, "annex-controller")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	err = scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		_, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return errors.Join(err, errors.New("secrets may still be listed"))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waitHeldUp waits until a release does not go on because of something.
func waitHeldUp(t *testing.T, group *scenario.Group, because string) {
	t.Helper()
	held := group.WaitFor(t, "the hold", func(g *kubeannexv1alpha1.AnnexedGroup) bool {
		return g == nil || strings.Contains(progressing(g).Message, because)
	})
	if held == nil {
		t.Fatal("the group was released")
	}
	condition := progressing(held)
	t.Logf("held: %s", condition.Message)
	if condition.Status != metav1.ConditionFalse || held.Status.Phase != kubeannexv1alpha1.PhaseReleasing || held.Status.Serving != kubeannexv1alpha1.ServingOpen ||
		!strings.Contains(condition.Message, "rbac.dependents") || strings.Contains(condition.Message, "\n") {
		t.Errorf("a release that is held must wait, annex open, and say in one line how to mend it: %s", scenario.Describe(held))
	}
}

// TestDependentsOfANarrowController releases an object with a new UID by a
// controller that may not see every kind: it holds the release until it is told
// what to search, and what it found survives.
func TestDependentsOfANarrowController(t *testing.T) {
	withoutController(t)
	cluster := suite.cluster
	start := func(args ...string) *env.Controller {
		t.Helper()
		controller, err := suite.env.StartController(scenario.Context(t), env.ControllerOptions{
			Name: "narrow-controller", Host: cluster.Host, Annex: cluster.Annex, Args: append(args, "--host-request-timeout=3s"),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { controller.Kill() }) //nolint:errcheck // it may have been stopped
		return controller
	}
	wide := start()
	group := cluster.NewGroup(t, "narrow.annex.test", nil)
	group.Seed(t, 10, 5)
	adopt(t, group)
	startControllerManager(t)
	f := newFamily(t, group)
	owner := f.create(t, group.Gadgets("v1"), "born-owner")
	dependent := f.create(t, configMaps, "owned-by-born", owner)
	f.mustCollect(t, "adopted")

	narrow(t, group, "get", "list")
	allowNewUIDs(t, group)
	group.Delete(t)
	waitHeldUp(t, group, "annex-controller may not list ")
	if err := wide.Stop(scenario.Context(t)); err != nil {
		t.Fatal(err)
	}
	start("--dependents=" + group.Name + "/*,/configmaps")
	waitHeldUp(t, group, "annex-controller may not patch configmaps,")
	group.WaitRouted(t, true)

	narrow(t, group, "get", "list", "patch")
	group.WaitGone(t)
	group.WaitRouted(t, false)
	released := f.uid(t, group.Gadgets("v1"), "born-owner")
	if released == "" || released == string(owner.GetUID()) {
		t.Fatalf("the owner has UID %q, want a new one", released)
	}
	f.mustCollect(t, "released")
	left, err := f.resource(configMaps).Get(scenario.Context(t), "owned-by-born", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(left.GetOwnerReferences()[0].UID); left.GetUID() != dependent.GetUID() || got != released {
		t.Errorf("the dependent %s names its owner by %s, want %s and %s", left.GetUID(), got, dependent.GetUID(), released)
	}
	mustBeLeft(t, group)
}
