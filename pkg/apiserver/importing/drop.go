// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
)

// dropMargin is how long before the end of its time a drop that is not done gives up.
const dropMargin = 5 * time.Second

// Drop deletes everything that is stored of a resource, finalizers
// notwithstanding, and returns the number of objects. What does not fit into the
// time of the request is answered by an error that asks to try again. An error is
// an API status error.
func (s *Stores) Drop(ctx context.Context, resource schema.GroupResource) (int64, error) {
	store, err := s.of(resource)
	if err != nil {
		return 0, storageError(err, resource, "")
	}
	var deleted atomic.Int64
	err = store.pages(ctx, func(page []rawObject) error {
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < dropMargin {
			return apierrors.NewTimeoutError(
				fmt.Sprintf("%s: %d objects were deleted, but not all: try again", resource, deleted.Load()), retryAfterSeconds)
		}
		return store.dropPage(ctx, page, &deleted)
	})
	if err != nil {
		return deleted.Load(), listError(err, resource)
	}
	left, err := store.storage.Stats(ctx)
	if err != nil {
		return deleted.Load(), storageError(err, resource, "")
	}
	if left.ObjectCount > 0 {
		return deleted.Load(), apierrors.NewInternalError(fmt.Errorf("%s: %d objects are left after all were deleted", resource, left.ObjectCount))
	}
	return deleted.Load(), nil
}

// dropPage deletes the objects of a page and returns the first error.
func (s *store) dropPage(ctx context.Context, page []rawObject, deleted *atomic.Int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	queue := make(chan *rawObject)
	for range writers {
		group.Go(func() {
			for object := range queue {
				if ctx.Err() != nil {
					continue
				}
				if err := s.drop(ctx, object, deleted); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range page {
		queue <- &page[i]
	}
	close(queue)
	group.Wait()
	return context.Cause(ctx)
}

func (s *store) drop(ctx context.Context, object *rawObject, deleted *atomic.Int64) error {
	var stored struct {
		Metadata struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(object.content, &stored); err != nil {
		return fmt.Errorf("decoding a stored object: %w", err)
	}
	name := displayName(stored.Metadata.Namespace, stored.Metadata.Name)
	// The listed object spares reading it once more.
	err := s.storage.Delete(ctx, s.prefix+"/"+name, &rawObject{}, nil, storage.ValidateAllObjectFunc, object, storage.DeleteOptions{})
	switch {
	case err == nil:
		deleted.Add(1)
		return nil
	case storage.IsNotFound(err):
		return nil
	default:
		return storageError(err, s.resource, name)
	}
}
