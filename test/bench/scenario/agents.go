// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
)

const (
	// agentUser and agentGroup are who a DaemonSet's pods are. An administrator would
	// be exempt from priority and fairness, and annex would not ask the host about him.
	agentUser  = "system:serviceaccount:default:endpoint-agent"
	agentGroup = "system:serviceaccounts"
	// agentRole is the ClusterRole and its binding.
	agentRole = "annex-bench-endpoint-agent"
	// openers is how many agents connect at the same time where that is not measured.
	openers = 64
)

// agents are the agents of many nodes: one identity, and one connection for each.
type agents struct {
	// configs are those of the agents by the name of the side, each with a certificate of its own.
	configs   map[string]*rest.Config
	throttled client.Throttled
	cluster   *cluster.Cluster
}

// newAgents gives the agents their rights and waits until all sides know of them.
func newAgents(ctx context.Context, c *cluster.Cluster) (*agents, error) {
	a := &agents{configs: map[string]*rest.Config{}, cluster: c}
	for _, side := range c.Sides() {
		if err := a.renew(side); err != nil {
			return nil, err
		}
	}
	err := c.Grant(ctx, cluster.Rights{
		Name: agentRole, Users: []string{agentUser},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{dataset.HostGroup, dataset.AnnexedGroup},
			Resources: []string{dataset.Endpoints.Resource()}, Verbs: []string{"get", "list", "watch"},
		}},
	})
	if err != nil {
		return a, err
	}
	for _, side := range c.Sides() {
		if err := a.waitForRights(ctx, side); err != nil {
			return a, err
		}
	}
	return a, nil
}

// waitForRights waits until an agent gets an answer.
func (a *agents) waitForRights(ctx context.Context, side cluster.Side) error {
	agent, err := a.connect(side)
	if err != nil {
		return err
	}
	defer agent.Close()
	return cluster.AwaitRights(ctx, side, func(ctx context.Context) error {
		_, err := recentVersion(ctx, agent, side)
		return err
	})
}

// renew gives the agents of a side a new certificate: to annex, which remembers for some seconds
// who may do what, they are others than before, as restarted pods with new tokens are.
func (a *agents) renew(side cluster.Side) (err error) {
	a.configs[side.Name], err = a.cluster.ConfigAs(side, agentUser, agentGroup)
	return err
}

// connect returns an agent with a connection of its own, which it makes with its first request.
func (a *agents) connect(side cluster.Side) (*client.Client, error) {
	return client.NewAgent(a.configs[side.Name], &a.throttled)
}

// close takes the rights away.
func (a *agents) close(ctx context.Context) error {
	if a == nil {
		return nil
	}
	return a.cluster.Revoke(ctx, agentRole)
}

// recentVersion returns the resourceVersion of a list of one.
func recentVersion(ctx context.Context, with *client.Client, side cluster.Side) (string, error) {
	answer, err := with.Get(ctx, side.URL(dataset.Endpoints, dataset.Selection{}, url.Values{"limit": {"1"}}), false)
	if err != nil {
		return "", err
	}
	list, err := answer.List()
	return list.ResourceVersion, err
}

// watchURL is where an agent watches the objects of its node from a version on, as informers do.
func watchURL(c *cluster.Cluster, side cluster.Side, node int, version string) string {
	return side.URL(dataset.Endpoints, c.Sizes.OnNode(node), url.Values{
		"watch": {"true"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
	})
}

// each calls do for all numbers below count, a few at a time.
func each(ctx context.Context, count, atOnce int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for first := range min(atOnce, count) {
		group.Go(func() error {
			for i := first; i < count; i += atOnce {
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

const (
	// quietInterval is over which time servers are looked at.
	quietInterval = 100 * time.Millisecond
	// quietTimeout is how long at most they get to become quiet.
	quietTimeout = 1500 * time.Millisecond
	// quietCores is how many cores quiet servers use: those that have finished what many
	// connections or watches that ended left to do.
	quietCores = 0.3
)

// settle waits until all servers of some sides have nothing more to do, for some time at most: what
// they go on doing on their own account is not ours to wait for.
func settle(ctx context.Context, sides ...cluster.Side) error {
	var pids []int
	for _, side := range sides {
		pids = append(pids, side.PIDs()...)
	}
	slices.Sort(pids)
	pids = slices.Compact(pids)
	if len(pids) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, quietTimeout)
	defer cancel()
	before, err := measure.Processes(pids...)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(limited, quietInterval, false, func(context.Context) (bool, error) {
		after, err := measure.Processes(pids...)
		used := after.Since(before).CPU
		before = after
		return used.Seconds() < quietCores*quietInterval.Seconds(), err
	})
	if wait.Interrupted(err) {
		return ctx.Err()
	}
	return err
}
