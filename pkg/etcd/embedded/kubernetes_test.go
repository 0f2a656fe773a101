// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
)

// TestKubernetesStorage drives the store through the very functions with which an API server opens its storage.
func TestKubernetesStorage(t *testing.T) {
	s := startServer(t, Options{RootDir: t.TempDir()})
	config := storagebackend.NewDefaultConfig("/registry", unstructured.UnstructuredJSONScheme)
	config.Transport.ServerList = s.Endpoints()
	resource := config.ForResource(schema.GroupResource{Group: "example.com", Resource: "things"})

	store, destroy, err := factory.Create(*resource,
		func() runtime.Object { return &unstructured.Unstructured{} },
		func() runtime.Object { return &unstructured.UnstructuredList{} }, "/things")
	must(t, err)
	t.Cleanup(destroy)

	thing := &unstructured.Unstructured{}
	thing.SetAPIVersion("example.com/v1")
	thing.SetKind("Thing")
	thing.SetName("a")
	created := &unstructured.Unstructured{}
	must(t, store.Create(t.Context(), "/things/a", thing, created, 0))
	if got, want := created.GetResourceVersion(), "1125899906842625"; got != want {
		t.Errorf("first object has resource version %s, want %s", got, want)
	}

	watcher, err := store.Watch(t.Context(), "/things/", storage.ListOptions{ResourceVersion: "1000", Recursive: true, Predicate: storage.Everything})
	must(t, err)
	event := <-watcher.ResultChan()
	watcher.Stop()
	if event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		t.Errorf("watch from a revision of another store: %v, want that it is expired", event)
	}
	err = store.GetList(t.Context(), "/things/", storage.ListOptions{
		ResourceVersion: "1000", ResourceVersionMatch: "Exact", Recursive: true, Predicate: storage.Everything,
	}, &unstructured.UnstructuredList{})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("list at a revision of another store: error is %v, want that it is expired", err)
	}
}

func TestKubernetesHealthChecks(t *testing.T) {
	s := startServer(t, Options{RootDir: t.TempDir()})
	config := storagebackend.NewDefaultConfig("/registry", unstructured.UnstructuredJSONScheme)
	config.Transport.ServerList = s.Endpoints()
	config.HealthcheckTimeout, config.ReadycheckTimeout = 100*time.Millisecond, 100*time.Millisecond
	stop := make(chan struct{})
	defer close(stop)

	health, err := factory.CreateHealthCheck(*config, stop)
	must(t, err)
	ready, err := factory.CreateReadyCheck(*config, stop)
	must(t, err)
	for name, check := range map[string]func() error{"health": health, "readiness": ready} {
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 10*time.Second, true,
			func(context.Context) (bool, error) { return check() == nil, nil })
		if err != nil {
			t.Errorf("%s check: %v, want it to pass", name, check())
		}
	}
	monitor, err := factory.CreateMonitor(*config)
	must(t, err)
	defer func() { _ = monitor.Close() }()
	if metrics, err := monitor.Monitor(t.Context()); err != nil || metrics.Size == 0 {
		t.Errorf("Monitor() = %v, %v, want the size of the database", metrics, err)
	}
}
