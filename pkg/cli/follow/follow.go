// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow waits for what the controller does with an AnnexedGroup and
// shows how far it is.
package follow

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/client"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
)

// Verdict says whether a state ends the wait: done, or failed with an error. The
// state is nil when the object is gone.
type Verdict func(group *kubeannexv1alpha1.AnnexedGroup) (done bool, err error)

// Until shows every state of an AnnexedGroup until one ends the wait, and
// returns that one. It outlives restarts of both API servers. A timeout of 0 is
// none. The error of a timeout says that annex goes on without being watched.
func Until(ctx context.Context, groups annexclient.Interface, name string, timeout time.Duration, display Display, verdict Verdict) (*kubeannexv1alpha1.AnnexedGroup, error) {
	defer display.Close()
	// What the informer logs about broken connections is not for users.
	ctx = klog.NewContext(ctx, logr.Discard())
	limited, cancel := watchtools.ContextWithOptionalTimeout(ctx, timeout)
	defer cancel()
	w := &wait{name: name, display: display, verdict: verdict}
	_, err := watchtools.UntilWithSync(limited, listerWatcher(groups, name), &kubeannexv1alpha1.AnnexedGroup{},
		func(store cache.Store) (bool, error) { return w.synced(limited, groups, store) }, w.event)
	switch {
	case w.ended:
		return w.last, w.err
	case ctx.Err() != nil:
		return w.last, fmt.Errorf("stopped waiting%s: annex goes on, see \"kubectl annex status %s\"", w.where(), name)
	case limited.Err() != nil:
		return w.last, fmt.Errorf("waited for %s in vain%s: annex goes on, see \"kubectl annex status %s\"", timeout, w.where(), name)
	}
	return w.last, fmt.Errorf("watching the AnnexedGroup: %w", err)
}

func listerWatcher(groups annexclient.Interface, name string) cache.ListerWatcher {
	client := groups.KubeannexV1alpha1().AnnexedGroups()
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = only
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = only
			return client.Watch(ctx, options)
		},
	}, groups)
}

// wait is one call of Until.
type wait struct {
	name    string
	display Display
	verdict Verdict

	last  *kubeannexv1alpha1.AnnexedGroup
	ended bool
	err   error
}

// synced judges an object that was gone before the watch began: no event will tell
// of it. What is missing from the list may be missing from a cache only, so it is asked for.
func (w *wait) synced(ctx context.Context, groups annexclient.Interface, store cache.Store) (bool, error) {
	if _, found, err := store.GetByKey(w.name); found || err != nil {
		return false, err
	}
	group, err := client.Get(ctx, groups, w.name)
	if err != nil || group != nil {
		return false, err
	}
	return w.judge(nil)
}

func (w *wait) event(event watch.Event) (bool, error) {
	group, ok := event.Object.(*kubeannexv1alpha1.AnnexedGroup)
	switch {
	case !ok || group.Name != w.name:
		return false, nil
	case event.Type == watch.Deleted:
		return w.judge(nil)
	}
	w.last = group
	done, err := w.judge(group)
	if err == nil {
		w.display.Show(group)
	}
	return done, err
}

func (w *wait) judge(group *kubeannexv1alpha1.AnnexedGroup) (bool, error) {
	done, err := w.verdict(group)
	w.ended, w.err = done || err != nil, err
	return done, err
}

func (w *wait) where() string {
	if w.last == nil {
		return ""
	}
	return fmt.Sprintf(" in phase %s", w.last.Status.Phase)
}
