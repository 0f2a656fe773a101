// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annexed

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apimachinery/pkg/api/apitesting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubeannex/annex/test/env/testetcd"
)

const (
	podPrefix  = "/pods/"
	dataPrefix = "stored:"
)

var errSynthetic = errors.New("synthetic error")

func podResource() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

func newTestCodec(t testing.TB) runtime.Codec {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := errors.Join(example.AddToScheme(scheme), examplev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return apitesting.TestCodec(serializer.NewCodecFactory(scheme), examplev1.SchemeGroupVersion)
}

func podAttributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := obj.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("got %T, not a pod", obj)
	}
	return pod.Labels, fields.Set{
		"metadata.name":      pod.Name,
		"metadata.namespace": pod.Namespace,
		"spec.nodeName":      pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"status.phase":       string(pod.Status.Phase),
	}, nil
}

// mode names the two stacks that the package can build.
type mode string

const (
	cached   mode = "cached"
	uncached mode = "uncached"
	// lazily is cached with a cache that the first read starts. Suites use it as a reason in notOn.
	lazily mode = "lazily"
)

// stackOptions are the differences between test stacks.
type stackOptions struct {
	etcd          func(*embed.Config)
	codec         runtime.Codec
	clusterScoped bool
	indexed       bool
	// triggers are those of the registry, in place of those that indexed stands for.
	triggers storage.IndexerFuncs
	// declared are indexes of the decorator, beside those of the registry that
	// indexed stands for. Only a cached stack has any.
	declared Indexes
	// source is where they come from if they change.
	source IndexSource
	// ended is told when a cache has ended.
	ended func(schema.GroupResource)
	// client is that of an etcd of another stack, whose objects this one has too.
	client *kubernetes.Client
	// lazy lets the first request that needs the cache start it.
	lazy bool
	// turns are shared with other stacks, if any.
	turns *turns
	// compact makes the objects of the cache compact ones.
	compact bool
	// unsafeDeletion adds the layer that generic.NewRawStorage adds while the
	// feature gate AllowUnsafeMalformedObjectDeletion is on.
	unsafeDeletion bool
}

// stack is one storage under test with the parts below it that tests steer.
type stack struct {
	// Interface is the outermost layer, as the registry gets it.
	storage.Interface

	mode        mode
	client      *kubernetes.Client
	raw         *steeredStore // nil when uncached
	codec       runtime.Codec
	prefix      string // of all keys in etcd
	transformer *steeredTransformer
	metrics     *Metrics
	destroy     func()
}

var (
	_ storagetesting.InterfaceWithPrefixTransformer   = &stack{}
	_ storagetesting.InterfaceWithTransformerOverride = &stack{}
)

// newStack starts an etcd and builds a stack over it with assemble, the same
// function that the product uses. Only the etcd3 store is opened here instead
// of by generic.NewRawStorage, because upstream's suites want its client.
func newStack(t testing.TB, m mode, opts stackOptions) *stack {
	t.Helper()
	s := &stack{mode: m, client: opts.client, codec: opts.codec, metrics: NewMetrics()}
	if s.client == nil {
		s.client = testetcd.Run(t, opts.etcd)
	}
	if s.codec == nil {
		s.codec = newTestCodec(t)
	}
	if m == cached {
		s.prefix = "/registry" // RunTestList wants it there, and none uncached
	}
	s.transformer = newSteeredTransformer()

	compactor := etcd3.NewCompactor(s.client.Client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	objects, kind := cacherConfig(s.codec, opts), compactPods(t, s.codec, opts)
	if kind != nil {
		kind.Apply(&objects)
	}
	versioner := storage.APIObjectVersioner{}
	raw, err := etcd3.New(s.client, compactor, objects.Codec, objects.NewFunc, objects.NewListFunc, s.prefix, podPrefix, podResource(),
		s.transformer, etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(objects.Codec, versioner), versioner)
	if err != nil {
		t.Fatal(err)
	}
	var bottom storage.Interface = raw
	if opts.unsafeDeletion {
		bottom = etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, podResource())
	}
	if m == cached {
		s.raw = &steeredStore{Interface: bottom}
		bottom = s.raw
	}

	if opts.source == nil {
		opts.source = staticIndexes{opts.declared}
	}
	config := Config{WatchCache: m == cached, Lazy: opts.lazy, Metrics: s.metrics, Indexes: opts.source, Ended: opts.ended, turns: opts.turns}
	assembled, destroy, err := assemble(bottom, raw.Close, config, objects, kind)
	if err != nil {
		t.Fatal(err)
	}
	s.Interface, s.destroy = assembled, destroy
	if kind != nil {
		s.Interface = decodedEvents{assembled}
	}
	t.Cleanup(s.destroy)
	s.waitReady(t)
	if opts.lazy {
		r := rotationOf(assembled)
		eventually(t, "birth of the storage to be known", func() bool {
			r.lock.RLock()
			defer r.lock.RUnlock()
			return r.late.born > 0
		})
	}
	return s
}

func cacherConfig(codec runtime.Codec, opts stackOptions) cacher.Config {
	config := cacher.Config{
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       podResource(),
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix:      podPrefix,
		KeyFunc:             func(obj runtime.Object) (string, error) { return storage.NamespaceKeyFunc(podPrefix, obj) },
		GetAttrsFunc:        podAttributes,
		NewFunc:             newPod,
		NewListFunc:         newPodList,
		Indexers:            &cache.Indexers{},
		Codec:               codec,
		Clock:               quickClock{},
	}
	if opts.clusterScoped {
		config.KeyFunc = func(obj runtime.Object) (string, error) { return storage.NoNamespaceKeyFunc(podPrefix, obj) }
	}
	if opts.indexed {
		config.IndexerFuncs = storage.IndexerFuncs{
			"spec.nodeName": func(obj runtime.Object) string { return obj.(*example.Pod).Spec.NodeName },
		}
		config.Indexers = &cache.Indexers{
			storage.FieldIndex("spec.nodeName"): func(obj any) ([]string, error) {
				return []string{obj.(*example.Pod).Spec.NodeName}, nil
			},
			storage.FieldIndex("metadata.namespace"): func(obj any) ([]string, error) {
				return []string{obj.(*example.Pod).Namespace}, nil
			},
		}
	}
	if opts.triggers != nil {
		config.IndexerFuncs = opts.triggers
	}
	return config
}

// waitReady waits until the cache is filled and until upstream knows that this
// etcd can serve consistent reads from the cache.
func (s *stack) waitReady(t testing.TB) {
	t.Helper()
	eventually(t, "storage to be ready", func() bool {
		return s.ReadinessCheck() == nil && etcdfeature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress)
	})
}

func (s *stack) kubernetesRecorder() *storagetesting.KubernetesRecorder {
	return s.client.Kubernetes.(*storagetesting.KubernetesRecorder)
}

func (s *stack) kvRecorder() *storagetesting.KVRecorder {
	return s.client.KV.(*storagetesting.KVRecorder)
}

// UpdatePrefixTransformer implements storagetesting.InterfaceWithPrefixTransformer.
func (s *stack) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	return s.transformer.replace(modify(storagetesting.NewPrefixTransformer([]byte(dataPrefix), false)))
}

// UpdateTransformer implements storagetesting.InterfaceWithTransformerOverride.
func (s *stack) UpdateTransformer(modify storagetesting.TransformerModifier) func() {
	return s.transformer.replace(modify(s.transformer.current()))
}

// compact compacts etcd at a revision, as another API server would, and waits
// until the storage has noticed.
func (s *stack) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	revision, err := s.Versioner().ParseResourceVersion(resourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	// Whoever guesses the version of the compaction key right compacts; a wrong
	// guess returns the right one.
	for version, compacted := int64(0), int64(0); compacted != int64(revision); {
		if version, _, compacted, err = etcd3.Compact(ctx, s.client.Client, version, int64(revision)); err != nil {
			t.Fatal(err)
		}
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.ListFromCacheSnapshot) {
		return // nobody watches for compactions
	}
	eventually(t, "compaction to be observed", func() bool { return s.CompactRevision() == int64(revision) })
}

// compactAndRelist compacts and relists. After that the cache, too, knows no
// event older than the compaction.
func (s *stack) compactAndRelist(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	s.compact(ctx, t, resourceVersion)
	s.relist(t)
}

// relist makes the cache read everything anew, as a cache does that was cut off
// for longer than etcd keeps its history.
func (s *stack) relist(t *testing.T) {
	t.Helper()
	if s.mode == uncached {
		return
	}
	before := s.raw.watches.Load()
	s.raw.expireWatches()
	eventually(t, "cache to read everything anew", func() bool {
		return s.raw.watches.Load() > before && s.ReadinessCheck() == nil
	})
}

func (s *stack) increaseRevision(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	response, err := s.client.KV.Put(ctx, "elsewhere", "changed")
	if err != nil {
		t.Fatal(err)
	}
	return response.Header.Revision
}

// checkStoredObject fails when what etcd holds carries fields that belong to
// the answer only.
func (s *stack) checkStoredObject(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	response, err := s.client.KV.Get(ctx, s.prefix+key)
	if err != nil {
		t.Fatal(err)
	}
	if len(response.Kvs) != 1 {
		t.Fatalf("got %d values at key %q, want 1", len(response.Kvs), key)
	}
	obj, err := runtime.Decode(s.codec, response.Kvs[0].Value[len(dataPrefix):])
	if err != nil {
		t.Fatal(err)
	}
	if pod := obj.(*example.Pod); pod.ResourceVersion != "" || pod.SelfLink != "" {
		t.Errorf("stored object has resourceVersion %q and selfLink %q, want none", pod.ResourceVersion, pod.SelfLink)
	}
}

// settled returns the stack with a Create that waits for the cache. Some suites
// need to know what a watch that starts afterwards finds in it.
func (s *stack) settled() storage.Interface {
	if s.mode == uncached {
		return s
	}
	return &settledStack{stack: s}
}

type settledStack struct{ *stack }

func (s *settledStack) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := s.stack.Create(ctx, key, obj, out, ttl); err != nil {
		return err
	}
	want := out.(*example.Pod).ResourceVersion
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		got := &example.Pod{}
		err := s.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, got)
		if storage.IsNotFound(err) {
			return false, nil
		}
		return got.ResourceVersion == want, err
	})
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(context.WithoutCancel(t.Context()), 5*time.Millisecond, wait.ForeverTestTimeout, true,
		func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
