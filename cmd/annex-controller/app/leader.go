// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// leaseTimeout bounds a request for the lease. It is below the ten seconds within
// which a leader has to renew it (controller-runtime/pkg/manager).
const leaseTimeout = 5 * time.Second

// election is how the replicas of the controller choose the one that works.
type election struct {
	client    kubernetes.Interface
	namespace string
	identity  string
}

func newElection(config *rest.Config, namespace string) (*election, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the host name: %w", err)
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	config.Timeout = leaseTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of the leader election: %w", err)
	}
	return &election{client: client, namespace: namespace, identity: host + "_" + string(uuid.NewUUID())}, nil
}

// lock is the lease, for the manager.
func (e *election) lock() (resourcelock.Interface, error) {
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, e.namespace, name, e.client.CoreV1(), e.client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: e.identity})
	if err != nil {
		return nil, fmt.Errorf("making the lease of the leader election: %w", err)
	}
	return lock, nil
}

// leads says whether this process has the lease now. The manager finds that out
// too, but goes on for up to ten seconds while it cannot renew it
// (client-go/tools/leaderelection).
func (e *election) leads(ctx context.Context) (bool, error) {
	lease, err := e.client.CoordinationV1().Leases(e.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("reading who leads: %w", err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "") == e.identity, nil
}
