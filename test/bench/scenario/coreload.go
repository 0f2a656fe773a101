// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
)

const (
	// coreClients is how many clients write ConfigMaps, and how many renew leases.
	coreClients = 16
	// corePace is the time between two requests of one client: 100 a second of each kind.
	corePace = 160 * time.Millisecond
	// configMapBytes is the size of a ConfigMap.
	configMapBytes = 1024
	// leaseSeconds is how long a lease holds, as leader election has it by default.
	leaseSeconds = 15
)

// coreLoad are writes of core resources at a fixed pace: create, update and delete
// of ConfigMaps in turn, and renewals of leases as a leader elector does them, by
// an update of what it has written last. A server that asks to wait is asked again
// by client-go. The time of a write counts from when it was due, so one that had
// to wait for the one before it counts in full.
type coreLoad struct {
	client     kubernetes.Interface
	configMaps [coreClients]*corev1.ConfigMap
	leases     [coreClients]*coordinationv1.Lease
}

// coreResult is how long core writes took, in seconds.
type coreResult struct{ writes, leases measure.Summary }

func newCoreLoad(config *rest.Config) (*coreLoad, error) {
	client, err := kubernetes.NewForConfig(dataset.Unlimited(config))
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &coreLoad{client: client}, nil
}

func coreName(n int) string { return fmt.Sprintf("%s-%02d", isolationName, n) }

func (l *coreLoad) createLeases(ctx context.Context) error {
	for n := range l.leases {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: coreName(n)},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(coreName(n)), LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: new(metav1.NowMicro()),
			},
		}
		var err error
		if l.leases[n], err = l.client.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a lease: %w", err)
		}
	}
	return nil
}

// measure writes for a time and then deletes the ConfigMaps that are left.
func (l *coreLoad) measure(ctx context.Context, window time.Duration) (coreResult, error) {
	var writes, leases measure.Latencies
	group, inner := errgroup.WithContext(ctx)
	start := time.Now()
	for n := range coreClients {
		first := start.Add(corePace / coreClients * time.Duration(n))
		for _, load := range []struct {
			act      func(context.Context, int) error
			recorder *measure.Recorder
		}{
			{l.writeConfigMap, writes.Recorder(int(window/corePace) + 1)},
			{l.renewLease, leases.Recorder(int(window/corePace) + 1)},
		} {
			group.Go(func() error {
				return paced(inner, first, start.Add(window), func(ctx context.Context, due time.Time) error {
					err := load.act(ctx, n)
					load.recorder.Since(due)
					return err
				})
			})
		}
	}
	if err := group.Wait(); err != nil {
		return coreResult{}, err
	}
	return coreResult{writes: writes.Summary(), leases: leases.Summary()}, l.deleteConfigMaps(ctx)
}

// paced calls act whenever it is due, and at once when it is late.
func paced(ctx context.Context, first, end time.Time, act func(ctx context.Context, due time.Time) error) error {
	for due := first; due.Before(end) && time.Now().Before(end); due = due.Add(corePace) {
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := act(ctx, due); err != nil {
			return err
		}
	}
	return nil
}

// writeConfigMap creates, updates or deletes the ConfigMap of a client.
func (l *coreLoad) writeConfigMap(ctx context.Context, n int) error {
	const state = "state"
	client := l.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	var err error
	switch present := l.configMaps[n]; {
	case present == nil:
		created := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: coreName(n)},
			Data:       map[string]string{"content": strings.Repeat("x", configMapBytes)},
		}
		l.configMaps[n], err = client.Create(ctx, created, metav1.CreateOptions{})
	case present.Data[state] == "":
		changed := present.DeepCopy()
		changed.Data[state] = "updated"
		l.configMaps[n], err = client.Update(ctx, changed, metav1.UpdateOptions{})
	default:
		err = client.Delete(ctx, present.Name, metav1.DeleteOptions{})
		l.configMaps[n] = nil
	}
	if err != nil {
		return fmt.Errorf("writing a ConfigMap: %w", err)
	}
	return nil
}

func (l *coreLoad) renewLease(ctx context.Context, n int) error {
	renewed := l.leases[n].DeepCopy()
	// The API keeps microseconds.
	renewed.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Truncate(time.Microsecond)))
	answer, err := l.client.CoordinationV1().Leases(renewed.Namespace).Update(ctx, renewed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("renewing a lease: %w", err)
	}
	if !answer.Spec.RenewTime.Equal(renewed.Spec.RenewTime) {
		return fmt.Errorf("the lease %s was renewed at %s instead of %s", renewed.Name, answer.Spec.RenewTime, renewed.Spec.RenewTime)
	}
	l.leases[n] = answer
	return nil
}

func (l *coreLoad) deleteConfigMaps(ctx context.Context) error {
	for n := range l.configMaps {
		if l.configMaps[n] == nil {
			continue
		}
		err := l.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(ctx, coreName(n), metav1.DeleteOptions{})
		if err := ignoreNotFound(err); err != nil {
			return fmt.Errorf("deleting a ConfigMap: %w", err)
		}
		l.configMaps[n] = nil
	}
	return nil
}

// close deletes everything.
func (l *coreLoad) close(ctx context.Context) error {
	errs := []error{l.deleteConfigMaps(ctx)}
	for n := range l.leases {
		if l.leases[n] != nil {
			errs = append(errs, ignoreNotFound(l.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, coreName(n), metav1.DeleteOptions{})))
		}
	}
	return errors.Join(errs...)
}
