// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/options"
	"github.com/kubeannex/annex/pkg/apiserver"
	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/pkg/etcd/space"
)

// Run starts the parts in the order in which they need each other and stops
// them in the reverse order:
//
//	listener → root directory → configuration and credentials → embedded etcd → server
//
// What can be checked without etcd is checked before it: such a failure leaves
// etcd's data alone. The embedded etcd has a life of its own: it is closed only
// when the server has answered its last request.
func Run(ctx context.Context, opts options.CompletedOptions) (err error) {
	connections := routeConnectionLog()
	instance, err := Start(ctx, opts)
	if ctx.Err() != nil && err != nil {
		klog.FromContext(ctx).Info("Stopped before the server was built", "reason", err)
		return nil
	}
	if err != nil {
		return err
	}
	connections.show()
	defer func() { err = utilerrors.NewAggregate([]error{err, instance.Close()}) }()
	// The registry of the process serves /metrics.
	if err := instance.Config.ExtraConfig.StorageMetrics.Register(legacyregistry.CustomRegister); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := instance.Config.ExtraConfig.ServingMetrics.Register(legacyregistry.CustomRegister); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := instance.Config.ExtraConfig.HostAPIs.Register(legacyregistry.CustomRegister); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := instance.Config.ExtraConfig.Reads.Register(legacyregistry.CustomRegister); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := instance.space.Register(legacyregistry.CustomRegister); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return instance.Serve(ctx)
}

// Instance is a server that is ready to serve, and what it depends on.
type Instance struct {
	// Server is the assembled API server.
	Server *apiserver.Server
	// Config is the configuration the server was built from.
	Config *apiserver.Config

	// etcd is nil with external servers.
	etcd *embedded.Server
	// lock makes the root directory the server's own. It is nil where nothing is kept there.
	lock *embedded.RootLock
	// space tells whether an etcd is full. It runs with Serve.
	space *space.Monitor
	// closeSpace closes the connections of space. It is nil before there are any.
	closeSpace func()
}

// Start assembles a server. The caller owns the instance and must Close it
// after Serve has returned.
func Start(ctx context.Context, opts options.CompletedOptions) (_ *Instance, err error) {
	if err := opts.Listen(); err != nil {
		return nil, err
	}
	instance := &Instance{}
	defer func() {
		if err != nil {
			opts.SecureServing.Listener.Close() //nolint:errcheck // the first error is the one to report
			err = utilerrors.NewAggregate([]error{err, instance.Close()})
		}
	}()
	if instance.lock, err = opts.LockRootDir(); err != nil {
		return nil, err
	}
	if instance.Config, err = opts.Config(); err != nil {
		return nil, err
	}
	if instance.etcd, err = opts.StartEmbeddedEtcd(ctx, instance.lock); err != nil {
		return nil, err
	}
	if err := opts.CheckEtcd(ctx, instance.Config); err != nil {
		return nil, err
	}
	if instance.space, instance.closeSpace, err = opts.SpaceMonitor(context.WithoutCancel(ctx), instance.Config); err != nil {
		return nil, err
	}
	if err := opts.ApplyStorage(instance.Config); err != nil {
		return nil, err
	}
	if instance.Server, err = instance.Config.Complete().New(); err != nil {
		return nil, err
	}
	return instance, nil
}

// Serve answers requests until ctx is done or the embedded etcd stops by itself.
func (i *Instance) Serve(ctx context.Context) error {
	monitorCtx, stop := context.WithCancel(ctx)
	var monitor sync.WaitGroup
	monitor.Go(func() { i.space.Run(monitorCtx) })
	defer monitor.Wait()
	defer stop()
	if i.etcd == nil {
		return i.Server.Run(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-i.etcd.Done():
			cancel(fmt.Errorf("embedded etcd stopped by itself: %w", i.etcd.Err()))
		case <-ctx.Done():
		}
	}()
	err := i.Server.Run(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return utilerrors.NewAggregate([]error{cause, err})
	}
	return err
}

// Close stops the embedded etcd, if there is one, waits until it has, and gives
// the root directory free, unless etcd may still write to it.
func (i *Instance) Close() error {
	if i.closeSpace != nil {
		i.closeSpace()
	}
	if i.etcd != nil {
		klog.Background().Info("Stopping embedded etcd")
		if err := i.etcd.Close(); err != nil {
			return fmt.Errorf("stopping embedded etcd: %w", err)
		}
	}
	if err := i.lock.Release(); err != nil {
		return fmt.Errorf("unlocking the root directory: %w", err)
	}
	return nil
}
