// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
)

const (
	// writers is how many objects one request writes at the same time. Etcd gathers
	// what arrives at the same time into one write to its disk.
	writers = 64
	// queued is how many objects wait for one writer.
	queued = 8
)

// Import writes the events of a stream: objects of ADDED and MODIFIED are stored
// as they are, those of DELETED removed, whatever their finalizers. An object that
// is stored already is not written again. Events of one object take effect in
// their order, those of different objects in any.
//
// An error is an API status error that names the object. What came before it in
// the stream is stored; so may be some of what came after it.
func (s *Stores) Import(ctx context.Context, target Target, stream io.Reader) (v1alpha1.ImportResult, error) {
	store, err := s.of(target.Resource)
	if err != nil {
		return v1alpha1.ImportResult{}, storageError(err, target.Resource, "")
	}
	run := &importRun{store: store.storage, target: target}
	run.failedAt.Store(math.MaxInt64)
	reader := newStreamReader(stream, target, store.prefix)
	err = run.run(ctx, reader)
	// A client reads the answer when it has sent everything. What is left is bounded by the limit of the reader.
	if err != nil {
		io.Copy(io.Discard, &limitedReader{stream, MaxRequestBytes}) //nolint:errcheck // the first error is the one to report
		return v1alpha1.ImportResult{}, err
	}
	return v1alpha1.ImportResult{
		Written:   run.written.Load(),
		Unchanged: run.unchanged.Load(),
		Deleted:   run.deleted.Load(),
		Digest:    reader.total.String(),
	}, nil
}

// importRun is one import: a reader and a number of writers, each of which writes
// the objects of some keys.
type importRun struct {
	store  storage.Interface
	target Target

	written, unchanged, deleted atomic.Int64

	// failedAt is the index of the earliest event that failed. Later ones are not worth a try.
	failedAt atomic.Int64
	lock     sync.Mutex
	err      error
}

func (r *importRun) run(ctx context.Context, reader *streamReader) error {
	var group sync.WaitGroup
	queues := make([]chan *item, writers)
	for i := range queues {
		queues[i] = make(chan *item, queued)
		group.Go(func() { r.write(ctx, queues[i]) })
	}
	r.read(ctx, reader, queues)
	for _, queue := range queues {
		close(queue)
	}
	group.Wait()
	return r.err
}

// read deals the events out until the stream ends or something fails.
func (r *importRun) read(ctx context.Context, reader *streamReader, queues []chan *item) {
	for r.failedAt.Load() == math.MaxInt64 {
		next, err := reader.next(ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && ctx.Err() != nil {
			err = storageError(context.Cause(ctx), r.target.Resource, reader.last)
		}
		if err != nil {
			r.fail(reader.index, err)
			return
		}
		if next != nil {
			queues[shard(next.key)] <- next
		}
	}
}

// shard chooses the writer of a key.
func shard(key string) uint32 {
	hash := fnv.New32a()
	io.WriteString(hash, key) //nolint:errcheck // a hash never fails
	return hash.Sum32() % writers
}

func (r *importRun) write(ctx context.Context, queue <-chan *item) {
	for next := range queue {
		if next.index > r.failedAt.Load() {
			continue
		}
		if err := r.apply(ctx, next); err != nil {
			r.fail(next.index, storageError(err, r.target.Resource, next.name))
		}
	}
}

func (r *importRun) fail(index int64, err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if index < r.failedAt.Load() {
		r.failedAt.Store(index)
		r.err = err
	}
}

func (r *importRun) apply(ctx context.Context, next *item) error {
	if next.content == nil {
		return r.remove(ctx, next)
	}
	if next.isNew {
		err := r.store.Create(ctx, next.key, &rawObject{content: next.content}, nil, 0)
		if err == nil {
			r.written.Add(1)
		}
		if !storage.IsExist(err) {
			return err
		}
	}
	var unchanged bool
	replace := func(current runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		raw, ok := current.(*rawObject)
		unchanged = ok && bytes.Equal(raw.content, next.content)
		return &rawObject{content: next.content}, nil, nil
	}
	if err := r.store.GuaranteedUpdate(ctx, next.key, &rawObject{}, true, nil, replace, nil); err != nil {
		return err
	}
	if unchanged {
		r.unchanged.Add(1)
	} else {
		r.written.Add(1)
	}
	return nil
}

func (r *importRun) remove(ctx context.Context, next *item) error {
	err := r.store.Delete(ctx, next.key, &rawObject{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	if err == nil {
		r.deleted.Add(1)
	}
	if storage.IsNotFound(err) {
		return nil
	}
	return err
}
