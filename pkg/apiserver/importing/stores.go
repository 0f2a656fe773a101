// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// errClosed is the answer of a Stores that was closed.
var errClosed = errors.New("the server is stopping")

// Stores opens the storage of resources and keeps it open: a connection to etcd
// is worth more than one request. It is safe for concurrent use.
type Stores struct {
	getter generic.RESTOptionsGetter

	lock   sync.Mutex
	closed bool
	stores map[schema.GroupResource]*store
}

// NewStores returns an empty Stores. getter says where custom resources are
// stored; its storage must have no watch cache. The caller must Close it.
func NewStores(getter generic.RESTOptionsGetter) *Stores {
	return &Stores{getter: getter, stores: map[schema.GroupResource]*store{}}
}

// Close closes all storage that was opened. Requests that use it fail.
func (s *Stores) Close() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.closed = true
	for _, store := range s.stores {
		store.close()
	}
}

// store is the storage of one resource. It is opened at the first use.
type store struct {
	resource schema.GroupResource

	lock   sync.Mutex
	closed bool
	// storage is set once and may be read by whom of returned it to.
	storage   storage.Interface
	destroy   func()
	transport storagebackend.TransportConfig
	// client is nil until it is needed.
	client *clientv3.Client
	// prefix is that of all keys of the resource, as in the generic registry
	// (k8s.io/apiserver pkg/registry/generic/registry/store.go, CompleteWithOptions).
	prefix string
}

// of returns the open storage of a resource.
func (s *Stores) of(resource schema.GroupResource) (*store, error) {
	s.lock.Lock()
	if s.closed {
		s.lock.Unlock()
		return nil, errClosed
	}
	found, ok := s.stores[resource]
	if !ok {
		found = &store{resource: resource}
		s.stores[resource] = found
	}
	s.lock.Unlock()
	// An etcd that does not answer must not hold up the resources of others.
	if err := found.open(s.getter); err != nil {
		return nil, err
	}
	return found, nil
}

func (s *store) open(getter generic.RESTOptionsGetter) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case s.closed:
		return errClosed
	case s.storage != nil:
		return nil
	}
	options, err := getter.GetRESTOptions(s.resource, nil)
	if err != nil {
		return fmt.Errorf("configuring storage of %s: %w", s.resource, err)
	}
	s.prefix = options.ResourcePrefix
	if !strings.HasPrefix(s.prefix, "/") {
		s.prefix = "/" + s.prefix
	}
	config := *options.StorageConfig
	config.Codec = rawCodec{stored: config.Codec}
	s.transport = config.Transport
	noKey := func(runtime.Object) (string, error) { return "", errors.New("raw objects have no key of their own") }
	noAttributes := func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil }
	opened, destroy, err := options.Decorator(&config, s.prefix, noKey, newRawObject, newRawList, noAttributes, nil, nil)
	if err != nil {
		return err
	}
	s.storage, s.destroy = opened, destroy
	return nil
}

func (s *store) close() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.closed = true
	if s.destroy != nil {
		s.destroy()
	}
	if s.client != nil {
		s.client.Close() //nolint:errcheck // it was only read from
		s.client = nil
	}
}
