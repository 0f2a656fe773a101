// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
)

const (
	// warmTimeout bounds the wait for one cache.
	warmTimeout = 5 * time.Minute
	// warmInterval is the pause between two looks at a cache.
	warmInterval = 500 * time.Millisecond
	// idleWindow is how long idle servers are measured.
	idleWindow = 5 * time.Second
)

// Warm waits until the cache of every kind holds all objects on every side.
func (c *Cluster) Warm(ctx context.Context) error {
	start := time.Now()
	filling, filled := errgroup.WithContext(ctx)
	for _, side := range c.Sides() {
		filling.Go(func() error {
			for _, kind := range c.Kinds {
				if err := WaitForCache(filled, side, kind, c.Sizes.Count(kind)); err != nil {
					return err
				}
			}
			c.Progress("the caches of %s are warm after %.1f s", side.Name, time.Since(start).Seconds())
			return nil
		})
	}
	return filling.Wait()
}

// MeasureIdle measures Idle, what servers use while nobody asks for anything: it is
// part of every CPU time that is measured.
func (c *Cluster) MeasureIdle(ctx context.Context) error {
	before := map[string]measure.Usage{}
	var err error
	for _, side := range c.Sides() {
		if before[side.Name], err = measure.Processes(side.PIDs()...); err != nil {
			return err
		}
	}
	start := time.Now()
	select {
	case <-time.After(idleWindow):
	case <-ctx.Done():
		return ctx.Err()
	}
	idle := map[string]float64{}
	for _, side := range c.Sides() {
		after, err := measure.Processes(side.PIDs()...)
		if err != nil {
			return err
		}
		idle[side.Name] = after.Since(before[side.Name]).CPU.Seconds() / time.Since(start).Seconds()
	}
	c.Idle = idle
	return nil
}

// WaitForCache waits until a LIST from the cache of a side has so many objects of a kind.
func WaitForCache(ctx context.Context, side Side, kind dataset.Kind, count int) error {
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	with, err := client.New(side.Config)
	if err != nil {
		return err
	}
	defer with.Close()
	address := side.URL(kind, dataset.Selection{}, url.Values{"resourceVersion": {"0"}})
	var last error
	err = wait.PollUntilContextCancel(ctx, warmInterval, true, func(ctx context.Context) (bool, error) {
		var answer client.Answer
		if answer, last = with.Get(ctx, address, false); last == nil {
			last = answer.Expect(count)
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the %s on %s: %w, last answer: %w", kind, side.Name, err, last)
	}
	return nil
}
