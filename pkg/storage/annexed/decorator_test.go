// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubeannex/annex/test/env/testetcd"
)

// backend returns a storage configuration for the given etcd.
func backend(t *testing.T, endpoints []string) *storagebackend.ConfigForResource {
	t.Helper()
	config := storagebackend.NewDefaultConfig("/registry", newTestCodec(t))
	config.Transport.ServerList = endpoints
	config.EventsHistoryWindow = cacher.DefaultEventFreshDuration
	return config.ForResource(podResource())
}

func decorate(cfg Config, backend *storagebackend.ConfigForResource) (storage.Interface, func(), error) {
	getter := NewRESTOptionsGetter(generic.RESTOptions{StorageConfig: backend}, cfg)
	options, err := getter.GetRESTOptions(podResource(), &example.Pod{})
	if err != nil {
		return nil, nil, err
	}
	keyFunc := func(obj runtime.Object) (string, error) { return storage.NamespaceKeyFunc(podPrefix, obj) }
	s, destroy, err := options.Decorator(options.StorageConfig, podPrefix, keyFunc, newPod, newPodList, podAttributes, nil, &cache.Indexers{})
	return s, destroy, err
}

// warmEtcd returns an etcd that has served a storage before, so that what it
// starts late is among the goroutines to ignore.
func warmEtcd(t *testing.T) (endpoints []string, running goleak.Option) {
	t.Helper()
	endpoints = testetcd.Run(t, nil).Endpoints()
	s, destroy, err := decorate(Config{WatchCache: true}, backend(t, endpoints))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "storage to be ready", func() bool { return s.ReadinessCheck() == nil })
	destroy()
	return endpoints, goleak.IgnoreCurrent()
}

// TestDecorator goes in by the only entry and opens the store as the product
// does, on both stacks, and finds nothing left behind afterwards.
func TestDecorator(t *testing.T) {
	for _, m := range []mode{cached, uncached} {
		t.Run(string(m), func(t *testing.T) {
			endpoints, running := warmEtcd(t)
			metrics := NewMetrics()
			s, destroy, err := decorate(Config{WatchCache: m == cached, Metrics: metrics}, backend(t, endpoints))
			if err != nil {
				t.Fatal(err)
			}
			defer destroy()
			eventually(t, "storage to be ready", func() bool { return s.ReadinessCheck() == nil })

			created := createPod(t.Context(), t, s, "web")
			got := &example.Pod{}
			if err := s.Get(t.Context(), podKey, storage.GetOptions{}, got); err != nil {
				t.Fatal(err)
			}
			if got.ResourceVersion != created.ResourceVersion {
				t.Errorf("got resourceVersion %q, want %q", got.ResourceVersion, created.ResourceVersion)
			}
			counts := metrics.Counts(podResource())
			if n := counts[Request{CallerClient, OperationGet}]; n != 1 {
				t.Errorf("got %d gets counted, want 1", n)
			}
			destroy()
			goleak.VerifyNone(t, running)
		})
	}
}

// TestFailedConstructionLeavesNothingOpen makes the cache refuse its
// configuration after the etcd3 store was opened.
func TestFailedConstructionLeavesNothingOpen(t *testing.T) {
	endpoints, running := warmEtcd(t)
	config := backend(t, endpoints)
	config.EventsHistoryWindow = cacher.DefaultEventFreshDuration - 1
	s, destroy, err := decorate(Config{WatchCache: true}, config)
	if err == nil {
		t.Fatal("got no error for a history window that is too short")
	}
	if s != nil {
		t.Errorf("got storage %v beside the error", s)
	}
	destroy()
	goleak.VerifyNone(t, running)
}

func TestRawStorageError(t *testing.T) {
	config := backend(t, nil)
	config.Type = "tape"
	s, destroy, err := decorate(Config{WatchCache: true}, config)
	if err == nil || s != nil {
		t.Errorf("got storage %v and error %v, want an error only", s, err)
	}
	destroy()
}

type failingGetter struct{ err error }

func (g failingGetter) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{}, g.err
}

func TestRESTOptionsErrorPassesBare(t *testing.T) {
	want := errors.New("no such resource")
	_, err := NewRESTOptionsGetter(failingGetter{err: want}, Config{}).GetRESTOptions(podResource(), nil)
	if err != want { //nolint:errorlint // the very error is wanted, not a wrapped one
		t.Errorf("got error %v, want %v itself", err, want)
	}
}

// newPodStore returns the etcd3 store of an etcd of its own. The caller closes it.
func newPodStore(t *testing.T, codec runtime.Codec) interface {
	storage.Interface
	Close()
} {
	t.Helper()
	versioner := storage.APIObjectVersioner{}
	store, err := etcd3.New(testetcd.Run(t, nil), nil, codec, newPod, newPodList, "", podPrefix, podResource(), newSteeredTransformer(),
		etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestDestroyOrder destroys a stack from several sides at once. The store must
// be closed once, and only after the layers above it have come to rest.
func TestDestroyOrder(t *testing.T) {
	for _, m := range []mode{cached, uncached} {
		t.Run(string(m), func(t *testing.T) {
			codec := newTestCodec(t)
			raw := newPodStore(t, codec)
			bottom := &lifetimeStore{Interface: raw}
			var s storage.Interface
			var closed, openAtClose atomic.Int64
			var readyAtClose error
			s, destroy, err := assemble(bottom, func() {
				closed.Add(1)
				openAtClose.Store(bottom.open.Load())
				readyAtClose = s.ReadinessCheck()
				raw.Close()
			}, Config{WatchCache: m == cached}, cacherConfig(codec, stackOptions{}), nil)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "storage to be ready", func() bool { return s.ReadinessCheck() == nil })

			var group sync.WaitGroup
			for range 4 {
				group.Go(destroy)
			}
			group.Wait()
			destroy()
			if n := closed.Load(); n != 1 {
				t.Errorf("store was closed %d times, want once", n)
			}
			if n := openAtClose.Load(); n != 0 {
				t.Errorf("%d calls were under way when the store was closed, want none", n)
			}
			if m == cached && readyAtClose == nil {
				t.Error("cache was still ready when the store was closed")
			}
		})
	}
}

// TestSizesAreEstimatedFromTheFirstRead lets the store look at the keys, and wait for
// a read of the cache, while it is told to estimate sizes.
func TestSizesAreEstimatedFromTheFirstRead(t *testing.T) {
	codec := newTestCodec(t)
	raw := newPodStore(t, codec)
	bottom := &estimatingStore{Interface: raw, t: t, read: make(chan struct{})}
	source := &changingIndexes{}
	s, destroy, err := assemble(bottom, raw.Close, Config{WatchCache: true, Indexes: source}, cacherConfig(codec, stackOptions{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer destroy()
	eventually(t, "storage to be ready", func() bool { return s.ReadinessCheck() == nil })
	declared := Indexes{Labels: []string{"app"}}
	source.change(declared)
	eventually(t, "declared indexes to be in service", func() bool { return inService(s, declared) })
	if n := bottom.enabled.Load(); n != 1 {
		t.Errorf("estimates were enabled %d times, want once", n)
	}
	if _, err := s.Stats(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFailureToEstimateSizes lets the store refuse estimates.
func TestFailureToEstimateSizes(t *testing.T) {
	var closed atomic.Int64
	s, _, err := assemble(refusingStore{}, func() { closed.Add(1) }, Config{WatchCache: true}, cacherConfig(newTestCodec(t), stackOptions{}), nil)
	if !errors.Is(err, errSynthetic) || s != nil {
		t.Errorf("got storage %v and error %v, want the error of the store only", s, err)
	}
	if n := closed.Load(); n != 1 {
		t.Errorf("store was closed %d times, want once", n)
	}
}

// estimatingStore expects to be told to estimate sizes before anything is read from it.
type estimatingStore struct {
	storage.Interface
	t       *testing.T
	enabled atomic.Int64
	once    sync.Once
	read    chan struct{}
}

func (s *estimatingStore) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	s.enabled.Add(1)
	select {
	case <-s.read:
		s.t.Error("the cache was reading before sizes were estimated")
	case <-time.After(time.Second):
	}
	if _, err := keys(s.t.Context()); err == nil {
		s.t.Error("got keys although no cache is in service")
	}
	return s.Interface.EnableResourceSizeEstimation(keys)
}

func (s *estimatingStore) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	s.once.Do(func() { close(s.read) })
	return s.Interface.Watch(ctx, key, opts)
}

func (s *estimatingStore) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	s.once.Do(func() { close(s.read) })
	return s.Interface.GetList(ctx, key, opts, listObj)
}

// refusingStore does not estimate sizes, and nothing else is asked of it.
type refusingStore struct{ storage.Interface }

func (refusingStore) EnableResourceSizeEstimation(storage.KeysFunc) error { return errSynthetic }

// lifetimeStore counts the lists that are under way.
type lifetimeStore struct {
	storage.Interface
	open atomic.Int64
}

func (s *lifetimeStore) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) error {
	s.open.Add(1)
	defer s.open.Add(-1)
	return s.Interface.GetList(ctx, key, opts, listObj)
}

// TestNoOptionalInterfaces compares the methods of the etcd3 store with those of
// storage.Interface. The counting store passes on the latter only: a new method
// must be looked at before it is hidden from the layers above.
func TestNoOptionalInterfaces(t *testing.T) {
	known := map[string]bool{"Close": true} // called by the destroy function of the store itself
	wanted := reflect.TypeFor[storage.Interface]()
	for method := range wanted.Methods() {
		known[method.Name] = true
	}
	client := testetcd.Run(t, nil)
	compactor := etcd3.NewCompactor(client.Client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	codec, versioner := newTestCodec(t), storage.APIObjectVersioner{}
	raw, err := etcd3.New(client, compactor, codec, newPod, newPodList, "", podPrefix, podResource(), newSteeredTransformer(),
		etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	for _, s := range []any{raw, etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, podResource())} {
		kind := reflect.TypeOf(s)
		for method := range kind.Methods() {
			if name := method.Name; !known[name] {
				t.Errorf("%s has a method %s that the counting store hides", kind, name)
			}
		}
	}
}
