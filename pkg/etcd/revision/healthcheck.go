// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/utils/clock"
)

const (
	// HealthCheckName is the name under which the check is listed in /readyz.
	HealthCheckName = "etcd-revision-floor"

	// probeTimeout bounds one check of one etcd.
	probeTimeout = 2 * time.Second
	// probeInterval is the least time between two checks of an etcd that is not known to meet the floor. Requests
	// between them get the last answer: /readyz is open to everybody.
	probeInterval = time.Second
)

// HealthCheck passes when every etcd of the server is at or above the revision floor. An etcd that met the floor is not
// asked again. It is safe for concurrent use and holds no connections.
type HealthCheck struct {
	floor     int64
	locations []*location
}

var _ healthz.HealthChecker = &HealthCheck{}

// NewHealthCheck returns a check of the given etcds: the default one and those of --etcd-servers-overrides.
// prefix is the --etcd-prefix. Equal server lists are checked once. A floor of 0 or less passes always.
func NewHealthCheck(floor int64, prefix string, configs ...storagebackend.TransportConfig) *HealthCheck {
	probe := func(ctx context.Context, config storagebackend.TransportConfig) (Result, error) {
		return CheckTransport(ctx, config, prefix, floor)
	}
	return newHealthCheck(floor, clock.RealClock{}, probe, configs)
}

type probeFunc func(context.Context, storagebackend.TransportConfig) (Result, error)

func newHealthCheck(floor int64, clock clock.PassiveClock, probe probeFunc, configs []storagebackend.TransportConfig) *HealthCheck {
	check := &HealthCheck{floor: floor}
	seen := map[string]bool{}
	for _, config := range configs {
		key := strings.Join(config.ServerList, ",")
		if !seen[key] {
			seen[key] = true
			check.locations = append(check.locations, &location{config: config, clock: clock, probe: probe})
		}
	}
	return check
}

// Name implements healthz.HealthChecker.
func (c *HealthCheck) Name() string {
	return HealthCheckName
}

// Check implements healthz.HealthChecker.
func (c *HealthCheck) Check(request *http.Request) error {
	if c.floor <= 0 {
		return nil
	}
	errs := make([]error, len(c.locations))
	var group sync.WaitGroup
	for i, location := range c.locations {
		group.Go(func() { errs[i] = location.check(request.Context()) })
	}
	group.Wait()
	return joinLine(errs)
}

// location is one etcd.
type location struct {
	config storagebackend.TransportConfig
	clock  clock.PassiveClock
	probe  probeFunc

	// mu is held during a probe: requests that come meanwhile wait for its answer.
	mu     sync.Mutex
	met    bool
	err    error
	probed time.Time
}

func (l *location) check(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.met {
		return nil
	}
	if !l.probed.IsZero() && l.clock.Since(l.probed) < probeInterval {
		return l.err
	}
	// A client that hangs up must not decide what the next one is told.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	result, err := l.probe(ctx, l.config)
	if err == nil {
		err = result.Err()
	}
	l.met, l.err, l.probed = err == nil, err, l.clock.Now()
	return err
}

// joinLine joins errors on one line.
func joinLine(errs []error) error {
	var joined error
	for _, err := range errs {
		switch {
		case err == nil:
		case joined == nil:
			joined = err
		default:
			joined = fmt.Errorf("%w; %w", joined, err)
		}
	}
	return joined
}
