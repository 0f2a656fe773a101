// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// uncachedReads are the reads that etcd answers while there is no cache that could, and
// the record of them.
type uncachedReads struct {
	// store is the etcd3 store.
	store storage.Interface
	// prefix is that of all keys.
	prefix string
	// rule says why there is no cache.
	rule Rule
}

// get answers a GET.
func (u uncachedReads) get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	err := u.store.Get(ctx, key, opts, objPtr)
	if recorder := recorderOf(ctx); recorder != nil {
		recorder.record(readingOfGet(Reading{Source: SourceEtcd, Rule: u.rule, Total: -1}, err))
	}
	return err
}

// getList answers a list.
func (u uncachedReads) getList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	recorder := recorderOf(ctx)
	switch {
	case recorder == nil:
		return u.store.GetList(ctx, key, opts, listObj)
	case recorder.explainOnly:
		return u.explainList(ctx, recorder, key, opts, listObj)
	}
	counted := countComparisons(&opts.Predicate)
	err := u.store.GetList(ctx, key, opts, listObj)
	reading := Reading{Source: SourceEtcd, Rule: u.rule, Total: -1}
	if err == nil {
		reading.Returned = int64(meta.LenList(listObj))
	}
	reading.Scanned = counted.orReturned(reading.Returned)
	recorder.record(reading)
	return err
}

// watch answers a watch.
func (u uncachedReads) watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	recorder := recorderOf(ctx)
	if recorder == nil {
		return u.store.Watch(ctx, key, opts)
	}
	reading := Reading{Source: SourceEtcd, Rule: u.rule, Total: -1}
	watched := watch.NewEmptyWatch()
	var err error
	if recorder.explainOnly {
		_, err = u.store.Versioner().ParseResourceVersion(opts.ResourceVersion)
	} else {
		watched, err = u.store.Watch(ctx, key, opts)
	}
	if err != nil {
		reading.Source, watched = "", nil
	}
	recorder.record(reading)
	return watched, err
}

// explainList decides and records a list without reading it. That its revision is
// compacted is found out only by reading. The answer has no resource version.
func (u uncachedReads) explainList(ctx context.Context, recorder *Recorder, key string, opts storage.ListOptions, listObj runtime.Object) error {
	reading := Reading{Rule: u.rule, Total: -1}
	if _, _, err := storage.ValidateListOptions(key, u.store.Versioner(), opts); err != nil {
		recorder.record(reading)
		return err
	}
	reading.Source = SourceEtcd
	if stats, err := u.store.Stats(ctx); err == nil {
		reading.Total, reading.ObjectBytes = stats.ObjectCount, stats.EstimatedAverageObjectSizeBytes
	}
	reading.Scanned, reading.Returned = -1, -1
	if strings.Trim(key, "/") == strings.Trim(u.prefix, "/") {
		reading.Scanned = reading.Total
	}
	reading = limited(reading, opts.Predicate)
	if !opts.Recursive {
		reading.Scanned, reading.Returned = 1, 1
	}
	recorder.record(reading)
	return noItems(listObj)
}

var _ storage.Interface = &uncachedStore{}

// uncachedStore is the etcd3 store of a server without a watch cache, with the record of
// its reads.
type uncachedStore struct {
	storage.Interface
	reads uncachedReads
}

func newUncachedStore(store storage.Interface, prefix string) *uncachedStore {
	return &uncachedStore{Interface: store, reads: uncachedReads{store: store, prefix: prefix, rule: RuleNoCache}}
}

// Get implements storage.Interface.
func (s *uncachedStore) Get(ctx context.Context, key string, opts storage.GetOptions, objPtr runtime.Object) error {
	return s.reads.get(ctx, key, opts, objPtr)
}

// GetList implements storage.Interface.
func (s *uncachedStore) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	return s.reads.getList(ctx, key, opts, listObj)
}

// Watch implements storage.Interface.
func (s *uncachedStore) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.reads.watch(ctx, key, opts)
}
