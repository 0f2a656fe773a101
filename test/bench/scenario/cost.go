// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"time"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/measure"
)

// cost is what one kind of request costs on one side.
type cost struct {
	// seconds are the times of all requests.
	seconds []float64
	// cpu is the CPU time of the servers per request, in seconds.
	cpu float64
	// bytes is the size of the last answer.
	bytes int
}

func (c cost) median() float64 { return measure.Median(c.seconds) }

// pace says how often a request is repeated in a round.
type pace struct {
	// atLeast and atMost are numbers of requests.
	atLeast, atMost int
	// budget is how long requests are repeated between those two.
	budget time.Duration
	// apart measures the CPU time of each request without that of checking the
	// answer. Without it the servers' idle work meanwhile is included, but not the
	// error of 10 ms for each request: right for short ones.
	apart bool
}

// request sends the n-th request and returns its answer and what has to be true of it.
type request func(ctx context.Context, n int) (answer client.Answer, check func() error, err error)

// repeat measures requests one after another.
func (p pace) repeat(ctx context.Context, side cluster.Side, send request) (cost, error) {
	var c cost
	pids := side.PIDs()
	begin := time.Now()
	before, err := measure.Processes(pids...)
	if err != nil {
		return c, err
	}
	var used time.Duration
	for n := 0; n < p.atLeast || n < p.atMost && time.Since(begin) < p.budget; n++ {
		if p.apart {
			if before, err = measure.Processes(pids...); err != nil {
				return c, err
			}
		}
		answer, check, err := send(ctx, n)
		if err != nil {
			return c, err
		}
		if p.apart {
			after, err := measure.Processes(pids...)
			if err != nil {
				return c, err
			}
			used += after.Since(before).CPU
		}
		c.seconds, c.bytes = append(c.seconds, answer.Took.Seconds()), len(answer.Body)
		if err := check(); err != nil {
			return c, err
		}
	}
	if !p.apart {
		after, err := measure.Processes(pids...)
		if err != nil {
			return c, err
		}
		used = after.Since(before).CPU
	}
	c.cpu = used.Seconds() / float64(len(c.seconds))
	return c, nil
}

// clients are one client for each side, by its name.
type clients map[string]*client.Client

func newClients(sides []cluster.Side) (clients, error) {
	made := clients{}
	for _, side := range sides {
		var err error
		if made[side.Name], err = client.New(side.Config); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (c clients) close() {
	for _, one := range c {
		one.Close()
	}
}
