// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/digest"
)

const (
	// pageBytes is about how much is read at once.
	pageBytes = 4 << 20
	// firstPage, minPage and maxPage are numbers of objects.
	firstPage = 100
	minPage   = 10
	maxPage   = 5000
)

// pages calls use with all stored objects, page by page, as they were at one revision.
func (s *store) pages(ctx context.Context, use func([]rawObject) error) error {
	options := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	options.Predicate.Limit = firstPage
	for {
		var page rawList
		if err := s.storage.GetList(ctx, s.prefix, options, &page); err != nil {
			return err
		}
		if err := use(page.Items); err != nil {
			return err
		}
		if page.Continue == "" {
			return nil
		}
		options.Predicate.Continue = page.Continue
		options.Predicate.Limit = nextPage(page.Items)
	}
}

// nextPage is how many objects of the same size make a page.
func nextPage(items []rawObject) int64 {
	size := 1
	for i := range items {
		size += len(items[i].content)
	}
	return int64(min(max(pageBytes*len(items)/size, minPage), maxPage))
}

// Digest computes the digest of everything that is stored of a resource, at one
// revision. An error is an API status error.
func (s *Stores) Digest(ctx context.Context, resource schema.GroupResource) (v1alpha1.ResourceDigest, error) {
	store, err := s.of(resource)
	if err != nil {
		return v1alpha1.ResourceDigest{}, storageError(err, resource, "")
	}
	var total digest.Set
	var digestErr error
	// One page is hashed while the next one is read.
	queue := make(chan []rawObject, 1)
	var group sync.WaitGroup
	group.Go(func() {
		for page := range queue {
			if digestErr == nil {
				digestErr = addTo(&total, page)
			}
		}
	})
	err = store.pages(ctx, func(page []rawObject) error {
		queue <- page
		return nil
	})
	close(queue)
	group.Wait()
	if err != nil {
		return v1alpha1.ResourceDigest{}, listError(err, resource)
	}
	if digestErr != nil {
		return v1alpha1.ResourceDigest{}, storageError(digestErr, resource, "")
	}
	return v1alpha1.ResourceDigest{Resource: resource.Resource, Objects: total.Objects, Bytes: total.Bytes, Digest: total.String()}, nil
}

func addTo(total *digest.Set, page []rawObject) error {
	for i := range page {
		entry, err := entryOf(page[i].content)
		if err != nil {
			return err
		}
		total.Add(entry)
	}
	return nil
}

// entryOf is digest.OfObject of stored JSON. What apiextensions and an import
// write is nearly always in the canonical form already.
func entryOf(content []byte) (digest.Entry, error) {
	if isCanonical(content) {
		return digest.OfBytes(content), nil
	}
	var object map[string]any
	if err := utiljson.Unmarshal(content, &object); err != nil {
		return digest.Entry{}, fmt.Errorf("decoding a stored object: %w", err)
	}
	return digest.OfObject(object)
}
