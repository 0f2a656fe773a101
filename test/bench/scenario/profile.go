// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/measure"
	"github.com/kubeannex/annex/test/env"
)

const (
	// profileTime is how long a side is profiled. Rounds are repeated meanwhile.
	profileTime = 10 * time.Second
	// idleTime is how long idle servers are profiled.
	idleTime = 30 * time.Second
)

// profiled is an API server that can be profiled.
type profiled struct {
	// name is that of its program.
	name    string
	config  *rest.Config
	process *env.Process
}

// profiledServers are both API servers of a cluster: on each side one also sees what the other does for it.
func profiledServers(c *cluster.Cluster) ([]profiled, error) {
	host, err := c.Side(cluster.SideHost)
	if err != nil {
		return nil, err
	}
	annex, err := c.Side(cluster.SideAnnex)
	if err != nil {
		return nil, err
	}
	return []profiled{
		{name: "kube-apiserver", config: host.Config, process: c.Host.APIServers[0].Process},
		{name: "annex-apiserver", config: annex.Config, process: c.Annex.Replicas[0].Process},
	}, nil
}

// profile plays rounds on each side until both API servers were profiled for
// profileTime. A scenario that has servers of its own is left out, and one that starts them again.
func (r *Runner) profile(ctx context.Context, s Scenario) error {
	if !profilable(s) {
		r.Progress("%s: not profiled, it has servers of its own or starts them again", s.Name())
		return nil
	}
	for _, side := range r.Cluster.Sides() {
		rounds := 0
		cost, err := r.profileWhile(ctx, s.Name()+"-"+side.Name, profileTime, func(ctx context.Context) error {
			rounds++
			_, err := s.Round(ctx, r.Cluster, side)
			return err
		})
		if err != nil {
			return fmt.Errorf("profiling %s: %w", side.Name, err)
		}
		r.Progress("%s: profiled %s for %s, %d rounds: %s", s.Name(), side.Name, profileTime, rounds, cost)
	}
	return nil
}

// profilable says that the servers of the main cluster run all through a round.
func profilable(s Scenario) bool {
	_, independent := s.(Independent)
	_, restarting := s.(Restarting)
	return !independent && !restarting
}

// ProfileIdle profiles both API servers while nobody asks them for anything, if profiles are wanted.
func (r *Runner) ProfileIdle(ctx context.Context) error {
	if r.Profiles == "" {
		return nil
	}
	cost, err := r.profileWhile(ctx, "idle", idleTime, nil)
	if err != nil {
		return fmt.Errorf("profiling idle servers: %w", err)
	}
	r.Progress("profiled idle servers for %s: %s", idleTime, cost)
	return nil
}

// profileWhile profiles both API servers and calls work again and again until that
// is done. It returns a text with the CPU time that each used for all of it.
func (r *Runner) profileWhile(ctx context.Context, name string, stretch time.Duration, work func(context.Context) error) (string, error) {
	servers, err := profiledServers(r.Cluster)
	if err != nil {
		return "", err
	}
	before := make([]measure.Usage, len(servers))
	for i, server := range servers {
		if before[i], err = measure.Processes(server.process.PID()); err != nil {
			return "", err
		}
	}
	if err := r.workWhile(ctx, work, func(ctx context.Context) error {
		return r.writeProfiles(ctx, servers, name, stretch)
	}); err != nil {
		return "", err
	}
	texts := make([]string, len(servers))
	for i, server := range servers {
		after, err := measure.Processes(server.process.PID())
		if err != nil {
			return "", err
		}
		texts[i] = fmt.Sprintf("%s used %.2f s of CPU", server.name, after.Since(before[i]).CPU.Seconds())
	}
	return strings.Join(texts, ", "), nil
}

// writeProfiles makes all profiles at the same time.
func (r *Runner) writeProfiles(ctx context.Context, servers []profiled, name string, stretch time.Duration) error {
	profiles, ctx := errgroup.WithContext(ctx)
	for _, server := range servers {
		path := filepath.Join(r.Profiles, name+"-"+server.name)
		for _, kind := range measure.ProfileKinds() {
			profiles.Go(func() error { return measure.WriteProfile(ctx, server.config, kind, stretch, path) })
		}
	}
	return profiles.Wait()
}

// workWhile calls work, which may be nil, again and again until wait has returned.
// Work is always ended by itself, so that a round leaves nothing behind.
func (r *Runner) workWhile(ctx context.Context, work, wait func(context.Context) error) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- wait(waiting) }()
	if work == nil {
		return <-done
	}
	for {
		if err := work(ctx); err != nil {
			stop()
			<-done //nolint:errcheck // it was stopped
			return err
		}
		select {
		case err := <-done:
			return err
		default:
		}
	}
}
