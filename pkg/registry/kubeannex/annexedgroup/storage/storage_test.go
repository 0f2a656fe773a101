// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistrytest "k8s.io/apiserver/pkg/registry/generic/testing"
	"k8s.io/apiserver/pkg/registry/rest"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/install"
	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/env/testetcd"
)

// fixture is a storage over a real etcd, with the getter that a server uses.
type fixture struct {
	Storage
	scheme *runtime.Scheme
	etcd   *clientv3.Client
}

func newFixture(t *testing.T, watchCache bool) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(kubeannexv1alpha1.SchemeGroupVersion)
	client := testetcd.Run(t, nil)

	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", codec))
	options.StorageConfig.Transport.ServerList = client.Endpoints()
	options.EnableWatchCache = watchCache
	storage, err := NewStorage(scheme, &genericoptions.StorageFactoryRestOptionsFactory{
		Options:        *options,
		StorageFactory: &genericoptions.SimpleStorageFactory{StorageConfig: options.StorageConfig},
	})
	if err != nil {
		t.Fatalf("NewStorage: %v", err)
	}
	t.Cleanup(storage.AnnexedGroup.Destroy)
	// Until it is filled, the watch cache refuses watches.
	ready := func(context.Context) (bool, error) {
		return storage.AnnexedGroup.Storage.Storage.ReadinessCheck() == nil, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, wait.ForeverTestTimeout, true, ready); err != nil {
		t.Fatalf("storage is not ready: %v", err)
	}
	return &fixture{Storage: storage, scheme: scheme, etcd: client.Client}
}

func (f *fixture) tester(t *testing.T) *genericregistrytest.Tester {
	t.Helper()
	return genericregistrytest.New(t, f.AnnexedGroup.Store).ClusterScope().
		Namer(func(i int) string { return fmt.Sprintf("group%d.example.com", i) })
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	return genericapirequest.WithNamespace(t.Context(), metav1.NamespaceNone)
}

func makeGroup(name string) *kubeannex.AnnexedGroup {
	return &kubeannex.AnnexedGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kubeannex.AnnexedGroupSpec{Resources: []kubeannex.AnnexedResourceSpec{
			{Resource: "workflows", IndexLabels: []string{"app"}, WatchIndex: &kubeannex.WatchIndex{Field: "spec.nodeName"}},
		}},
		Status: kubeannex.AnnexedGroupStatus{Phase: kubeannex.PhasePending},
	}
}

func (f *fixture) create(t *testing.T, group *kubeannex.AnnexedGroup) *kubeannex.AnnexedGroup {
	t.Helper()
	created, err := f.AnnexedGroup.Create(testContext(t), group, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating %s: %v", group.Name, err)
	}
	return created.(*kubeannex.AnnexedGroup)
}

// updater is what REST and StatusREST have in common.
type updater interface {
	Update(context.Context, string, rest.UpdatedObjectInfo, rest.ValidateObjectFunc, rest.ValidateObjectUpdateFunc, bool, *metav1.UpdateOptions) (runtime.Object, bool, error)
}

func update(t *testing.T, through updater, group *kubeannex.AnnexedGroup) (*kubeannex.AnnexedGroup, error) {
	t.Helper()
	updated, _, err := through.Update(testContext(t), group.Name, rest.DefaultUpdatedObjectInfo(group),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	return updated.(*kubeannex.AnnexedGroup), nil
}

// TestCreate leaves out the tester's check of generated names (GeneratesName
// switches it off): "test-xxxxx" is no API group.
func TestCreate(t *testing.T) {
	invalid := makeGroup("invalid.example.com")
	invalid.Spec.Resources[0].WatchIndex = &kubeannex.WatchIndex{}
	newFixture(t, false).tester(t).GeneratesName().TestCreate(makeGroup("argoproj.io"), makeGroup("apps"), makeGroup("node.k8s.io"), invalid)
}

func TestUpdate(t *testing.T) {
	newFixture(t, false).tester(t).TestUpdate(makeGroup("argoproj.io"),
		func(obj runtime.Object) runtime.Object {
			group := obj.(*kubeannex.AnnexedGroup)
			group.Spec.Resources[0].IndexLabels = []string{"app", "team"}
			return group
		},
		func(obj runtime.Object) runtime.Object {
			group := obj.(*kubeannex.AnnexedGroup)
			group.Spec.Resources[0].IndexLabels = []string{"app", "app"}
			return group
		})
}

func TestDelete(t *testing.T) {
	newFixture(t, false).tester(t).TestDelete(makeGroup("argoproj.io"))
}

func TestGet(t *testing.T) { newFixture(t, false).tester(t).TestGet(makeGroup("argoproj.io")) }

func TestList(t *testing.T) { newFixture(t, false).tester(t).TestList(makeGroup("argoproj.io")) }

func TestWatch(t *testing.T) {
	group := makeGroup("argoproj.io")
	group.Labels = map[string]string{"team": "a"}
	newFixture(t, false).tester(t).TestWatch(group,
		[]labels.Set{{"team": "a"}}, []labels.Set{{"team": "b"}},
		[]fields.Set{{"metadata.name": "argoproj.io"}, {"status.phase": "Pending"}},
		[]fields.Set{{"metadata.name": "example.com"}, {"status.phase": "Annexed"}})
}

func TestKeys(t *testing.T) {
	f := newFixture(t, true)
	f.create(t, makeGroup("argoproj.io"))
	f.create(t, makeGroup("example.com"))
	response, err := f.etcd.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatalf("reading etcd: %v", err)
	}
	var got []string
	for _, pair := range response.Kvs {
		if key := string(pair.Key); strings.HasPrefix(key, "/registry/") {
			got = append(got, key)
		}
	}
	want := []string{"/registry/kubeannex.io/annexedgroups/argoproj.io", "/registry/kubeannex.io/annexedgroups/example.com"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestDiscoveryNames(t *testing.T) {
	storage := newFixture(t, true).AnnexedGroup
	got := [][]string{storage.ShortNames(), storage.Categories(), {storage.GetSingularName()}}
	want := [][]string{{"ag"}, {"annex"}, {"annexedgroup"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("short names, categories, singular (-want +got):\n%s", diff)
	}
}

func TestCreateAnswersWhatIsStored(t *testing.T) {
	f := newFixture(t, true)
	group := makeGroup("argoproj.io")
	group.Generation = 5
	group.Status = kubeannex.AnnexedGroupStatus{Phase: kubeannex.PhaseAnnexed, ObservedGeneration: 5}
	created := f.create(t, group)
	stored, err := f.AnnexedGroup.Get(testContext(t), "argoproj.io", &metav1.GetOptions{})
	if err != nil {
		t.Fatalf("getting: %v", err)
	}
	if diff := cmp.Diff(created, stored.(*kubeannex.AnnexedGroup)); diff != "" {
		t.Errorf("created and stored object (-created +stored):\n%s", diff)
	}
	if created.Generation != 1 {
		t.Errorf("generation: got %d, want 1", created.Generation)
	}
	if diff := cmp.Diff(kubeannex.AnnexedGroupStatus{Phase: kubeannex.PhasePending}, created.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStatusUpdate(t *testing.T) {
	f := newFixture(t, true)
	group := makeGroup("argoproj.io")
	group.Finalizers = []string{"kubeannex.io/release"}
	created := f.create(t, group)

	change := created.DeepCopy()
	change.Spec = kubeannex.AnnexedGroupSpec{}
	change.Finalizers = nil
	change.Status = kubeannex.AnnexedGroupStatus{
		Phase:     kubeannex.PhaseCopying,
		Resources: []kubeannex.AnnexedResourceStatus{{Resource: "workflows", Objects: 10, Bytes: 15000, Copied: 4}},
	}
	got, err := update(t, f.Status, change)
	if err != nil {
		t.Fatalf("updating status: %v", err)
	}
	want := created.DeepCopy()
	want.Status = change.Status
	want.ResourceVersion = got.ResourceVersion
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}

	got.Status.Phase = kubeannex.PhaseAborted
	got.Labels = map[string]string{"team": "a"}
	got, err = update(t, f.AnnexedGroup, got)
	if err != nil {
		t.Fatalf("updating main resource: %v", err)
	}
	if got.Status.Phase != kubeannex.PhaseCopying || got.Labels["team"] != "a" || got.Generation != 1 {
		t.Errorf("after a metadata update: got phase %s, labels %v, generation %d, want Copying, team a, 1", got.Status.Phase, got.Labels, got.Generation)
	}
}

func TestStatusUpdateErrors(t *testing.T) {
	f := newFixture(t, true)
	created := f.create(t, makeGroup("argoproj.io"))
	cases := map[string]struct {
		change  func(*kubeannex.AnnexedGroup)
		wantErr func(error) bool
	}{
		"an unknown phase is invalid":             {change: func(group *kubeannex.AnnexedGroup) { group.Status.Phase = "Lost" }, wantErr: apierrors.IsInvalid},
		"an old resource version conflicts":       {change: func(group *kubeannex.AnnexedGroup) { group.ResourceVersion = "1" }, wantErr: apierrors.IsConflict},
		"a missing object is never created by it": {change: func(group *kubeannex.AnnexedGroup) { group.Name = "example.com" }, wantErr: apierrors.IsNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			change := created.DeepCopy()
			tc.change(change)
			if _, err := update(t, f.Status, change); !tc.wantErr(err) {
				t.Errorf("error: got %v", err)
			}
		})
	}
}

func TestFinalizerHoldsDeletion(t *testing.T) {
	f := newFixture(t, true)
	group := makeGroup("argoproj.io")
	group.Finalizers = []string{"kubeannex.io/release"}
	f.create(t, group)
	if _, _, err := f.AnnexedGroup.Delete(testContext(t), "argoproj.io", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatalf("deleting: %v", err)
	}
	obj, err := f.AnnexedGroup.Get(testContext(t), "argoproj.io", &metav1.GetOptions{})
	if err != nil {
		t.Fatalf("getting while the finalizer is there: %v", err)
	}
	held := obj.(*kubeannex.AnnexedGroup)
	if held.DeletionTimestamp == nil {
		t.Fatal("no deletion timestamp")
	}
	held.Finalizers = nil
	if _, err := update(t, f.AnnexedGroup, held); err != nil {
		t.Fatalf("removing the finalizer: %v", err)
	}
	if _, err := f.AnnexedGroup.Get(testContext(t), "argoproj.io", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("getting after the finalizer went: got %v, want not found", err)
	}
}

func TestSelectByPhase(t *testing.T) {
	f := newFixture(t, true)
	f.create(t, makeGroup("pending.example.com"))
	annexed := f.create(t, makeGroup("annexed.example.com"))
	annexed.Status.Phase = kubeannex.PhaseAnnexed
	if _, err := update(t, f.Status, annexed); err != nil {
		t.Fatalf("updating status: %v", err)
	}
	for phase, want := range map[string]string{"Pending": "pending.example.com", "Annexed": "annexed.example.com"} {
		t.Run(phase, func(t *testing.T) {
			options := &metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("status.phase", phase)}
			list, err := f.AnnexedGroup.List(testContext(t), options)
			if err != nil {
				t.Fatalf("listing: %v", err)
			}
			var got []string
			for _, item := range list.(*kubeannex.AnnexedGroupList).Items {
				got = append(got, item.Name)
			}
			if diff := cmp.Diff([]string{want}, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWatchByPhase checks that an object which leaves the selected phase is
// reported as deleted, through the watch cache.
func TestWatchByPhase(t *testing.T) {
	f := newFixture(t, true)
	created := f.create(t, makeGroup("argoproj.io"))
	watcher, err := f.AnnexedGroup.Watch(testContext(t), &metainternalversion.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("status.phase", "Pending"), ResourceVersion: created.ResourceVersion,
	})
	if err != nil {
		t.Fatalf("watching: %v", err)
	}
	defer watcher.Stop()
	created.Status.Phase = kubeannex.PhasePreflight
	if _, err := update(t, f.Status, created); err != nil {
		t.Fatalf("updating status: %v", err)
	}
	select {
	case event := <-watcher.ResultChan():
		if event.Type != watch.Deleted {
			t.Errorf("event: got %s, want %s", event.Type, watch.Deleted)
		}
	case <-t.Context().Done():
		t.Fatal("no event")
	}
}

type failingGetter struct{ err error }

func (g failingGetter) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{}, g.err
}

func TestNewStorageReportsGetterErrors(t *testing.T) {
	want := errors.New("no storage for this resource")
	if _, err := NewStorage(runtime.NewScheme(), failingGetter{want}); !errors.Is(err, want) {
		t.Errorf("error: got %v, want %v inside", err, want)
	}
}
