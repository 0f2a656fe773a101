// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubeannex/annex/pkg/controller/fence"
)

const (
	// keeperInterval is how often this process looks at its own fences, listInterval how often it asks the host for others.
	keeperInterval = 500 * time.Millisecond
	listInterval   = 10 * time.Second
	// maxOwn and maxOrphan are the ages from which they are lifted. Both are above maxFence, so that a step comes first.
	maxOwn    = maxFence + 500*time.Millisecond
	maxOrphan = maxFence + 4*time.Second
)

// KeepFences lifts fences that their steps cannot lift, because annex does not
// answer or the AnnexedGroup is gone: a broken annex must not hold back writes
// of a group that it does not serve. It runs until ctx is done.
func (r *Reconciler) KeepFences(ctx context.Context) error {
	var listed time.Time
	for {
		err := r.liftOlder(ctx, r.sessions.standing(), maxOwn)
		if err == nil && r.Clock.Since(listed) >= listInterval {
			listed = r.Clock.Now()
			var all []fence.Fence
			if all, err = r.fences().List(ctx); err == nil {
				err = r.liftOlder(ctx, all, maxOrphan)
			}
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Looking at fences failed")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.Clock.After(keeperInterval):
		}
	}
}

func (r *Reconciler) liftOlder(ctx context.Context, fences []fence.Fence, age time.Duration) error {
	for _, f := range fences {
		if r.Clock.Since(f.Since) < age {
			continue
		}
		if err := r.liftOrphan(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) liftOrphan(ctx context.Context, f fence.Fence) error {
	r.sessions.flip.Lock()
	defer r.sessions.flip.Unlock()
	resources, err := r.hostResources(ctx, f.Group)
	if err != nil {
		return err
	}
	if begun, err := r.anyTaken(ctx, resources); err != nil || begun {
		return err
	}
	if err := r.mustLead(ctx); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Lifting a fence that holds writes back without a move going on", "group", f.Group, "since", f.Since)
	if err := r.fences().Lower(ctx, &f); err != nil {
		return err
	}
	r.sessions.lowered(f.Group)
	return nil
}
