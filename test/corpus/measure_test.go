// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubeannex/annex/test/env"
)

const (
	// sampleInterval is the pause between two looks at the CPU time of a process.
	sampleInterval = time.Second
	// quietShare is the share of one core below which a process is quiet, for
	// quietSamples looks in a row.
	quietShare   = 0.15
	quietSamples = 4
	// probeInterval is the pause between two requests of the prober.
	probeInterval = 50 * time.Millisecond
	// clockTicks is the unit of CPU times in /proc, ticks a second.
	clockTicks = 100
	mebibyte   = 1 << 20
)

// usage is what a process has used.
type usage struct {
	// rss and peak are the resident memory now and at most, in bytes.
	rss, peak int64
	cpu       time.Duration
}

// usageOf reads the usage of a process from /proc.
func usageOf(process *env.Process) (usage, error) {
	dir := fmt.Sprintf("/proc/%d/", process.PID())
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return usage{}, fmt.Errorf("measuring a process needs /proc, run this test on Linux: %w", err)
	}
	var used usage
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kibibytes, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			used.rss = kibibytes << 10
		case "VmHWM:":
			used.peak = kibibytes << 10
		}
	}
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return usage{}, fmt.Errorf("measuring a process: %w", err)
	}
	// The name of the program is in brackets; utime and stime are 11 and 12 after it.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return usage{}, fmt.Errorf("measuring a process: cannot read %sstat", dir)
	}
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("measuring a process: %w", err)
		}
		used.cpu += time.Duration(ticks) * time.Second / clockTicks
	}
	return used, nil
}

// waitQuiet waits until the process needs next to no CPU and returns its usage.
func waitQuiet(ctx context.Context, process *env.Process) (usage, error) {
	last, err := usageOf(process)
	if err != nil {
		return usage{}, err
	}
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	lastTime := time.Now()
	for quiet := 0; quiet < quietSamples; {
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("waiting until %s is quiet: %w", process.Name(), context.Cause(ctx))
		case <-tick.C:
		}
		now, err := usageOf(process)
		if err != nil {
			return usage{}, err
		}
		share := float64(now.cpu-last.cpu) / float64(time.Since(lastTime))
		quiet++
		if share > quietShare {
			quiet = 0
		}
		last, lastTime = now, time.Now()
	}
	return last, nil
}

// prober reads one object again and again until it is stopped.
type prober struct {
	cancel context.CancelFunc
	done   chan struct{}

	// Valid after stop.
	latencies []time.Duration
	failures  []string
}

func (s *server) probe(ctx context.Context, path string) *prober {
	ctx, cancel := context.WithCancel(ctx)
	p := &prober{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(probeInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				p.once(ctx, s, path)
			}
		}
	}()
	return p
}

func (p *prober) once(ctx context.Context, s *server, path string) {
	begin := time.Now()
	got, err := s.get(ctx, path)
	switch {
	case ctx.Err() != nil:
		// Stopped while the request was under way.
	case err != nil:
		p.failures = append(p.failures, err.Error())
	case got.Code != http.StatusOK:
		p.failures = append(p.failures, fmt.Sprintf("%d %s", got.Code, got.Message))
	default:
		p.latencies = append(p.latencies, time.Since(begin))
	}
}

func (p *prober) stop() {
	p.cancel()
	<-p.done
	slices.Sort(p.latencies)
}

func (p *prober) quantile(q float64) time.Duration {
	if len(p.latencies) == 0 {
		return 0
	}
	return p.latencies[int(q*float64(len(p.latencies)-1))].Round(100 * time.Microsecond)
}
