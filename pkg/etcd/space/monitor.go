// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"
)

const (
	// monitorPeriod is the time between two looks at the alarms.
	monitorPeriod = 15 * time.Second
	// monitorPatience bounds one look without the defragmentation that may follow.
	monitorPatience = 10 * time.Second
)

// Location is an etcd that a Monitor looks at.
type Location struct {
	// Client reaches all of its members. The owner of the Monitor closes it.
	Client *clientv3.Client
	// Limits are those of an embedded etcd, of which the Monitor makes room where it can. Nil leaves that to
	// whoever runs the etcd.
	Limits *Limits
}

func (l Location) name() string { return strings.Join(l.Client.Endpoints(), ",") }

// Monitor tells whether etcds are full.
type Monitor struct {
	locations []Location
	period    time.Duration

	lock sync.Mutex
	full map[string]bool
}

// NewMonitor returns a monitor that has not looked yet.
func NewMonitor(locations ...Location) *Monitor {
	return &Monitor{locations: locations, period: monitorPeriod, full: map[string]bool{}}
}

// Run looks at all etcds until ctx is done.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(m.period)
	defer ticker.Stop()
	for {
		for _, location := range m.locations {
			m.look(ctx, location)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// look logs what has changed. Of an etcd that does not answer nothing new is known, and others tell.
func (m *Monitor) look(ctx context.Context, location Location) {
	logger, name := klog.FromContext(ctx), location.name()
	full, err := location.check(ctx)
	if err != nil {
		logger.V(2).Info("The alarms of etcd cannot be read", "servers", name, "err", err)
		return
	}
	if before := m.note(name, full != nil); before == (full != nil) {
		return
	}
	if full != nil {
		logger.Error(full, "Etcd is full: reads, and deletions of objects without finalizers, go on, other writes fail")
		return
	}
	logger.Info("Etcd has room again", "servers", name)
}

// note remembers the state of an etcd and returns the one before.
func (m *Monitor) note(name string, full bool) (before bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	before = m.full[name]
	m.full[name] = full
	return before
}

// states tells of every etcd that was looked at whether it is full.
func (m *Monitor) states() map[string]bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	return maps.Clone(m.full)
}

// check returns a FullError while etcd is full. An embedded one is made room in first.
func (l Location) check(ctx context.Context) (*FullError, error) {
	checkCtx, cancel := context.WithTimeout(ctx, monitorPatience)
	defer cancel()
	err := Check(checkCtx, l.Client)
	var full *FullError
	switch {
	case !errors.As(err, &full):
		return nil, err
	case l.Limits == nil:
		return full, nil
	}
	worthwhile, size, err := l.prepare(checkCtx)
	if err != nil {
		return nil, err
	}
	if !worthwhile {
		return l.Limits.full(size), nil
	}
	// It copies the whole database, so only the end of the server ends it.
	err = Recover(ctx, l.Client, *l.Limits)
	if errors.As(err, &full) {
		return full, nil
	}
	return nil, err
}

// prepare tells whether defragmentation makes room enough. Where it does not, old revisions are
// dropped first, which costs little: objects may have been deleted.
func (l Location) prepare(ctx context.Context) (worthwhile bool, size int64, err error) {
	if size, err = sizeInUse(ctx, l.Client); err != nil || l.Limits.hasRoom(size) {
		return err == nil, size, err
	}
	if err := compact(ctx, l.Client); err != nil {
		return false, 0, err
	}
	size, err = sizeInUse(ctx, l.Client)
	return err == nil && l.Limits.hasRoom(size), size, err
}

func sizeInUse(ctx context.Context, client *clientv3.Client) (int64, error) {
	status, err := client.Status(ctx, client.Endpoints()[0])
	if err != nil {
		return 0, err
	}
	return status.DbSizeInUse, nil
}
