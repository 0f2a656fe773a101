// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexedgroup

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/controller/cluster"
)

const (
	// confirmTimeout bounds the wait for all processes to agree, before the step is reported as held up.
	confirmTimeout = 20 * time.Second
	// The pause between two questions grows from the first to the second.
	shortestPause = 20 * time.Millisecond
	longestPause  = 320 * time.Millisecond
)

// hostEndpoint is one kube-apiserver.
type hostEndpoint = *cluster.Server

// await asks again until ask returns nil. When the time is up, or ctx is done,
// it returns what was answered last.
func (r *Reconciler) await(ctx context.Context, timeout time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-r.Clock.After(pause):
		}
	}
}

// onEveryHost asks every kube-apiserver. Behind a load balancer, where they
// cannot be told apart, it asks over and over again instead.
func (r *Reconciler) onEveryHost(ctx context.Context, ask func(context.Context, hostEndpoint) error) error {
	servers, err := r.Connections.HostEndpoints(ctx)
	if err != nil {
		return err
	}
	begin := r.Clock.Now()
	for {
		if err := cluster.OnEvery(ctx, servers, ask); err != nil || r.Clock.Since(begin) >= r.Connections.HostSampling {
			return err
		}
		for _, server := range servers {
			server.Reconnect()
		}
		r.pause(ctx, shortestPause)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// routeTimeout is how long the guard of definitions may wait for kube-apiservers. The webhook has ten seconds.
const routeTimeout = 7 * time.Second

// AwaitRoute returns when every kube-apiserver passes requests of a version on to
// annex. Where none does and no definition has it the answer is 404; an APIService
// of a service that does not have the version yet is answered 503.
func (r *Reconciler) AwaitRoute(ctx context.Context, version schema.GroupVersion) error {
	servers, err := r.Connections.HostEndpoints(ctx)
	if err != nil {
		return err
	}
	return r.await(ctx, routeTimeout, func(ctx context.Context) error {
		return cluster.OnEvery(ctx, servers, func(ctx context.Context, server *cluster.Server) error {
			err := server.Kube.Discovery().RESTClient().Get().AbsPath("/apis", version.Group, version.Version).MaxRetries(0).Do(ctx).Error()
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("it does not route %s to annex yet", version)
			}
			if _, answered := errors.AsType[*apierrors.StatusError](err); answered {
				return nil
			}
			return err
		})
	})
}

// replicaStatus is the answer of one annex-apiserver.
type replicaStatus struct {
	// name says which one.
	name string
	kubeannexv1alpha1.ReplicaStatus
}

// replicas asks every annex-apiserver what it knows of a group.
func (r *Reconciler) replicas(ctx context.Context, group string) ([]replicaStatus, error) {
	return replicaStatuses(ctx, group, r.Connections.AnnexEndpoints)
}

func replicaStatuses(ctx context.Context, group string, endpoints cluster.Endpoints) ([]replicaStatus, error) {
	servers, err := endpoints(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var statuses []replicaStatus
	err = cluster.OnEvery(ctx, servers, func(ctx context.Context, server *cluster.Server) error {
		status := replicaStatus{name: server.Name}
		err := answerOf(ctx, server.Groups.KubeannexV1alpha1().RESTClient().Get().Resource("annexedgroups").Name(group).
			SubResource(kubeannexv1alpha1.ReplicaSubresource).MaxRetries(0), &status.ReplicaStatus)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		statuses = append(statuses, status)
		return nil
	})
	return statuses, err
}

// annexRevision is the present revision of annex's etcd.
func (r *Reconciler) annexRevision(ctx context.Context, group string) (int64, error) {
	statuses, err := r.replicas(ctx, group)
	if err != nil {
		return 0, err
	}
	if len(statuses) == 0 {
		return 0, errors.New("annex has no replica: start annex-apiserver")
	}
	revision := statuses[0].Revision
	for _, status := range statuses {
		revision = min(revision, status.Revision)
	}
	return revision, nil
}

// serve makes annex answer the group's requests in a mode and waits until every
// replica does. The status is written at once.
func (r *Reconciler) serve(ctx context.Context, group *kubeannexv1alpha1.AnnexedGroup, mode kubeannexv1alpha1.ServingMode) error {
	if group.Status.Serving != mode {
		group.Status.Serving = mode
		if err := r.writeStatus(ctx, group); err != nil {
			return err
		}
	}
	return r.await(ctx, confirmTimeout, func(ctx context.Context) error {
		statuses, err := r.replicas(ctx, group.Name)
		if err != nil {
			return err
		}
		if r.Connections.AnnexLeaving != nil && group.Status.Phase == kubeannexv1alpha1.PhaseReleaseFencing {
			// A replica that ends may have a write in hand. It answers that it has none, or is waited for.
			leaving, err := replicaStatuses(ctx, group.Name, r.Connections.AnnexLeaving)
			if err != nil {
				return fmt.Errorf("waiting for a replica of annex that ends: %w", err)
			}
			statuses = append(statuses, leaving...)
		}
		for _, status := range statuses {
			if status.Serving != mode {
				return fmt.Errorf("a replica of annex still serves the group in mode %s instead of %s", status.Serving, mode)
			}
		}
		return nil
	})
}

// awaitReplicas waits until every replica knows the present definitions of
// resources: established, and with ready also that it answers from filled caches.
func (r *Reconciler) awaitReplicas(ctx context.Context, group string, ready bool) error {
	definitions, err := listDefinitions(ctx, r.Connections.Annex, group)
	if err != nil {
		return err
	}
	return r.await(ctx, confirmTimeout, func(ctx context.Context) error {
		statuses, err := r.replicas(ctx, group)
		if err != nil {
			return err
		}
		for i := range definitions {
			for _, status := range statuses {
				if err := checkReplica(&status.ReplicaStatus, definitions[i].Spec.Names.Plural, definitions[i].Generation, ready); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func checkReplica(status *kubeannexv1alpha1.ReplicaStatus, plural string, generation int64, ready bool) error {
	for _, known := range status.Resources {
		if known.Resource != plural {
			continue
		}
		switch {
		case known.DefinitionGeneration < generation:
			return fmt.Errorf("a replica of annex does not know the present definition of %s yet", plural)
		case !known.Established:
			return fmt.Errorf("the definition of %s is not established in annex: read its conditions with kubectl at annex itself", plural)
		case ready && !known.Ready:
			return fmt.Errorf("a replica of annex does not answer from its cache of %s yet: if it lasts, look for a conversion webhook that annex cannot reach", plural)
		}
		return nil
	}
	return fmt.Errorf("a replica of annex does not know the definition of %s yet", plural)
}

// revisionAt is the revision of a consistent list of a resource at a server.
func revisionAt(ctx context.Context, server *cluster.Server, gvr schema.GroupVersionResource) (int64, error) {
	// A full read of the first object also proves that a conversion works.
	list, err := server.Dynamic.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	revision, err := strconv.ParseInt(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the revision of a list: %w", err)
	}
	return revision, nil
}

// stopwatch logs how long the parts of a step take that happen behind the fence.
type stopwatch struct {
	r    *Reconciler
	last time.Time
}

func (r *Reconciler) newStopwatch() *stopwatch { return &stopwatch{r: r, last: r.Clock.Now()} }

func (w *stopwatch) lap(ctx context.Context, what string, keysAndValues ...any) {
	now := w.r.Clock.Now()
	klog.FromContext(ctx).Info(what, append(keysAndValues, "took", now.Sub(w.last).Round(time.Millisecond))...)
	w.last = now
}
