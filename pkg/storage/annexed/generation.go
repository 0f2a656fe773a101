// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
	"k8s.io/klog/v2"
)

const (
	// catchUpPeriod is the time between two looks at a cache that is filled but behind etcd.
	catchUpPeriod = 100 * time.Millisecond
	// restPeriod is how long a cache may take in the events that etcd has sent before it
	// is stopped. It needs milliseconds, as its dispatcher gives up slow watches.
	restPeriod = 10 * time.Second
)

// generation is a watch cache with one set of indexes. It lives until the
// declaration of indexes changes.
type generation struct {
	// prefix is that of all keys, with a slash at its end.
	prefix    string
	keyFunc   func(runtime.Object) (string, error)
	newList   func() runtime.Object
	indexes   *indexSet
	cache     *cacher.Cacher
	delegator *cacher.CacheDelegator
	// etcd is the store below the cache.
	etcd storage.Interface
	// keys lists the keys in the cache, nil when upstream does not estimate sizes.
	keys storage.KeysFunc
	// calls are those under way. None is added once the generation was replaced.
	calls    sync.WaitGroup
	stopOnce sync.Once
	// source is what the cache reads from.
	source *source
	// onEnd calls a function in a goroutine of its own when end is called, unless the
	// function that it returns was called before.
	onEnd func(func()) func() bool
	end   context.CancelFunc
	// hide takes the indexes out of the metrics.
	hide func()
	// stats are those that the cache was asked for last, nil before.
	stats atomic.Pointer[knownStats]
	// learning is when learnSize last asked for them, in nanoseconds.
	learning atomic.Int64
}

// stop ends the watches and the upkeep of the cache. It may be called any number
// of times, and returns when the cache has come to rest, or does not after restPeriod.
func (g *generation) stop() {
	g.stopOnce.Do(func() {
		g.hide()
		g.end()
		rested := g.source.cut(restPeriod)
		g.delegator.Stop()
		if rested {
			g.cache.Stop()
		} else {
			klog.InfoS("A cache is busy for too long to wait for its end: restart annex-apiserver if its memory does not shrink", "prefix", g.prefix)
			go g.cache.Stop()
		}
		g.source.end()
	})
}

// listing is a list as it was asked for and as it is read.
type listing struct {
	key  string
	opts storage.ListOptions
	// readsIndex says that upstream looks at the indexes.
	readsIndex bool
	// hinted are the options that name the index, if used says that one of ours is.
	hinted storage.ListOptions
	used   bool
}

// newListing chooses the index for a list.
func (g *generation) newListing(key string, opts storage.ListOptions) *listing {
	l := &listing{key: key, opts: opts, hinted: opts, readsIndex: g.readsIndex(opts)}
	if l.readsIndex {
		l.hinted.Predicate, l.used = g.indexes.forList(opts.Predicate, g.namespaceOf(key))
	}
	return l
}

// read are the options that upstream answers.
func (l *listing) read() storage.ListOptions {
	if l.used {
		return l.hinted
	}
	return l.opts
}

// readList answers a list through an index where one fits.
//
// Upstream's index path is the scan with fewer candidates, in the same order: it
// filters them again, sorts them by key, and answers at the same resource
// version (k8s.io/apiserver pkg/storage/cacher/watch_cache.go,
// waitAndGetLatestSnapshot). One thing differs: a list that stops at its limit
// has a continue token if any candidate is left, and with an index a candidate
// that does not match is not among them. So where an index fills the limit to the
// brim, the objects behind the last one decide.
func (g *generation) readList(ctx context.Context, l *listing, listObj runtime.Object) error {
	if !l.used {
		return g.delegator.GetList(ctx, l.key, l.opts, listObj)
	}
	if err := g.delegator.GetList(ctx, l.key, l.hinted, listObj); err != nil {
		return err
	}
	if limit := l.opts.Predicate.Limit; limit <= 0 || l.opts.ResourceVersion == "0" || int64(meta.LenList(listObj)) != limit {
		return nil
	}
	list, err := meta.ListAccessor(listObj)
	if err != nil {
		return err
	}
	if list.GetContinue() != "" {
		return nil
	}
	if err := g.continueAtBrim(ctx, l.key, l.opts, listObj, list.GetResourceVersion()); err == nil {
		return nil
	}
	// The state of that revision is not at hand any more: list anew, without an index.
	if err := emptyList(listObj); err != nil {
		return err
	}
	l.used = false
	return g.delegator.GetList(ctx, l.key, l.opts, listObj)
}

// continueAtBrim gives a list the continue token that it has without an index: if
// there is any object behind its last one, whether it matches or not.
func (g *generation) continueAtBrim(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object, resourceVersion string) error {
	last, err := lastItem(listObj)
	if err != nil {
		return err
	}
	lastKey, err := g.keyFunc(last)
	if err != nil {
		return err
	}
	versioner := g.delegator.Versioner()
	revision, err := versioner.ParseResourceVersion(resourceVersion)
	if err != nil {
		return err
	}
	token, _, err := storage.PrepareContinueToken(lastKey, key, int64(revision), 0, true, opts)
	if err != nil {
		return err
	}
	rest := g.newList()
	predicate := storage.Everything
	predicate.Limit, predicate.Continue = 1, token
	if err := g.cache.GetList(ctx, key, storage.ListOptions{Predicate: predicate, Recursive: true}, rest); err != nil {
		return err
	}
	if meta.LenList(rest) == 0 {
		return nil
	}
	return versioner.UpdateList(listObj, revision, token, nil)
}

// itemsOf is the slice of the items of a list.
func itemsOf(listObj runtime.Object) (reflect.Value, error) {
	items, err := meta.GetItemsPtr(listObj)
	if err != nil {
		return reflect.Value{}, err
	}
	return conversion.EnforcePtr(items)
}

// lastItem is the last of a list that is not empty.
func lastItem(listObj runtime.Object) (runtime.Object, error) {
	items, err := itemsOf(listObj)
	if err != nil {
		return nil, err
	}
	last := items.Index(items.Len() - 1)
	if last.Kind() != reflect.Pointer && last.Kind() != reflect.Interface {
		last = last.Addr()
	}
	object, ok := reflect.TypeAssert[runtime.Object](last)
	if !ok {
		return nil, fmt.Errorf("item of %T is a %s and not an object", listObj, last.Type())
	}
	return object, nil
}

// readsIndex reports whether upstream looks at the indexes for such a list at all:
// it does for the latest state in the cache, not for one object, a continued list
// or one at an exact revision (k8s.io/apiserver pkg/storage/cacher/watch_cache.go,
// waitUntilFreshAndList).
func (g *generation) readsIndex(opts storage.ListOptions) bool {
	predicate := opts.Predicate
	if !opts.Recursive || predicate.Continue != "" || opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return false
	}
	if opts.ResourceVersionMatch == "" && predicate.Limit > 0 && opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
		return false // an exact revision, before resourceVersionMatch was invented
	}
	result, err := delegator.ShouldDelegateList(opts, g.cache)
	return err == nil && !result.ShouldDelegate
}

// namespaceOf is the namespace that a key is confined to, or "" if it is not. The
// registry asks for all namespaces without the slash at the end of the prefix
// (k8s.io/apiserver pkg/registry/generic/registry/store.go, NamespaceKeyRootFunc).
func (g *generation) namespaceOf(key string) string {
	return strings.Trim(strings.TrimPrefix(key+"/", g.prefix), "/")
}

// emptyList takes the items out of a list: the etcd3 store appends to what it finds.
func emptyList(listObj runtime.Object) error {
	items, err := itemsOf(listObj)
	if err != nil {
		return err
	}
	items.SetZero()
	return nil
}

// startWatch starts a watch that ends with the generation as if the client had stopped
// it, also while nobody reads it.
func (g *generation) startWatch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	watched, err := g.delegator.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return newEndingWatch(ctx, watched, g.onEnd, func() {}), nil
}

// endingWatch is a watch that its storage knows until the client stops it.
type endingWatch struct {
	watch.Interface
	// forget may be called any number of times.
	forget func()
}

// newEndingWatch returns a watch that is stopped by onEnd. It is forgotten, and release is called, when
// it is stopped otherwise or ctx is done: a handler that fails early does not stop its watch
// (k8s.io/apiserver pkg/endpoints/handlers/get.go, handleWatch). release may be called more than once.
func newEndingWatch(ctx context.Context, watched watch.Interface, onEnd func(func()) func() bool, release func()) *endingWatch {
	unfollow := onEnd(watched.Stop)
	forget := func() {
		unfollow()
		release()
	}
	keep := context.AfterFunc(ctx, func() {
		watched.Stop()
		forget()
	})
	return &endingWatch{Interface: watched, forget: func() {
		keep()
		forget()
	}}
}

// Stop implements watch.Interface.
func (w *endingWatch) Stop() {
	w.forget()
	w.Interface.Stop()
}

// waitFresh waits until the cache is filled and has seen what etcd holds now. It
// tries until ctx is done.
func (g *generation) waitFresh(ctx context.Context, store storage.Interface) error {
	if err := g.cache.Wait(ctx); err != nil {
		return err
	}
	if !delegator.ConsistentReadSupported() {
		return nil
	}
	for {
		err := g.reach(ctx, store)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		klog.V(2).InfoS("A new cache has not caught up with etcd yet", "prefix", g.prefix, "err", err)
		pause(ctx, catchUpPeriod)
	}
}

// reach asks the cache for a state as new as etcd's. Upstream waits for it, for some seconds.
func (g *generation) reach(ctx context.Context, store storage.Interface) error {
	revision, err := store.GetCurrentResourceVersion(ctx)
	if err != nil {
		return err
	}
	predicate := storage.Everything
	predicate.Limit = 1
	return g.cache.GetList(ctx, g.prefix, storage.ListOptions{
		ResourceVersion:      strconv.FormatUint(revision, 10),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		Predicate:            predicate,
		Recursive:            true,
	}, g.newList())
}

func pause(ctx context.Context, period time.Duration) {
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
