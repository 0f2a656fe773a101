// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubeannex/annex/test/env"
)

// gadgets returns a client of the gadgets of a namespace at the server of config.
func gadgets(t *testing.T, config *rest.Config, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(env.GadgetResource("v1")).Namespace(namespace)
}

// replicaClients returns clients of both annex replicas, past kube-apiserver,
// and makes the namespace.
func replicaClients(t *testing.T, namespace string) [2]dynamic.ResourceInterface {
	t.Helper()
	host, err := suite.host.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := env.EnsureNamespace(testContext(t), host, namespace); err != nil {
		t.Fatal(err)
	}
	var clients [2]dynamic.ResourceInterface
	for i := range clients {
		config, err := suite.annex.AdminConfig(i)
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = gadgets(t, config, namespace)
	}
	return clients
}

// event is what matters of a watch event.
type event struct {
	Type, Name, Revision string
}

// TestReplicaSeesWritesOfTheOther writes through one replica and reads through
// the other: at once by consistent GET and LIST, in order by WATCH.
func TestReplicaSeesWritesOfTheOther(t *testing.T) {
	clients := replicaClients(t, "replicas")
	for name, tc := range map[string]struct{ writer, reader int }{
		"first to second": {writer: 0, reader: 1},
		"second to first": {writer: 1, reader: 0},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			writer, reader := clients[tc.writer], clients[tc.reader]
			empty, err := reader.List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			stream, err := reader.Watch(ctx, metav1.ListOptions{ResourceVersion: empty.GetResourceVersion()})
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Stop()

			want := writeSeries(ctx, t, writer, reader)
			var got []event
			for range want {
				got = append(got, nextEvent(ctx, t, stream))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("written through one (-) and watched through the other (+) differ:\n%s", diff)
			}
		})
	}
}

// writeSeries creates, updates and deletes objects through writer, looks for
// each through reader at once and returns the events that a watch must show.
func writeSeries(ctx context.Context, t *testing.T, writer, reader dynamic.ResourceInterface) []event {
	t.Helper()
	var events []event
	for i := range 20 {
		created, err := writer.Create(ctx, env.SeedGadget("replicas", i), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event{string(watch.Added), created.GetName(), created.GetResourceVersion()})
		list, err := reader.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 {
			t.Errorf("list after create %d: %d objects, want 1", i, len(list.Items))
		}
		patched, err := writer.Patch(ctx, created.GetName(), types.MergePatchType, []byte(`{"spec":{"color":"patched"}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event{string(watch.Modified), patched.GetName(), patched.GetResourceVersion()})
		read, err := reader.Get(ctx, created.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(patched, read); diff != "" {
			t.Errorf("written (-) and read (+) differ:\n%s", diff)
		}
		events = append(events, event{string(watch.Deleted), created.GetName(), deleteOne(ctx, t, writer, reader, created.GetName())})
	}
	return events
}

// deleteOne deletes through writer, shows that reader knows, and returns the
// revision of the deletion, which only a list can tell.
func deleteOne(ctx context.Context, t *testing.T, writer, reader dynamic.ResourceInterface, name string) string {
	t.Helper()
	if err := writer.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after delete: %v, want NotFound", err)
	}
	list, err := writer.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.GetResourceVersion()
}

func nextEvent(ctx context.Context, t *testing.T, stream watch.Interface) event {
	t.Helper()
	select {
	case e, ok := <-stream.ResultChan():
		if !ok {
			t.Fatal("the watch ended")
		}
		object, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("the watch shows %v", e)
		}
		return event{string(e.Type), object.GetName(), object.GetResourceVersion()}
	case <-ctx.Done():
		t.Fatal("no event")
	}
	return event{}
}

// ledger records what writers were told and what an informer saw.
type ledger struct {
	mu      sync.Mutex
	written map[string]types.UID
	seen    map[string]types.UID
	deletes int
}

func (l *ledger) write(name string, uid types.UID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[name] = uid
	return len(l.written)
}

func (l *ledger) see(object any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o, ok := object.(*unstructured.Unstructured); ok {
		l.seen[o.GetName()] = o.GetUID()
	}
}

func (l *ledger) loss(any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deletes++
}

// difference tells what the informer has not seen.
func (l *ledger) difference() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Diff(l.written, l.seen)
}

// TestKilledReplicaLosesNothing writes through kube-apiserver and kills one
// replica after the other with SIGKILL: every acknowledged object is there
// afterwards, and an informer has seen each and no deletion.
func TestKilledReplicaLosesNothing(t *testing.T) {
	const namespace, writers, perWriter = "killed", 4, 60
	ctx := testContext(t)
	clients := replicaClients(t, namespace)
	config, err := suite.host.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	book := &ledger{written: map[string]types.UID{}, seen: map[string]types.UID{}}
	startInformer(ctx, t, config, namespace, book)

	through := gadgets(t, config, namespace)
	progress := make(chan int, writers*perWriter)
	group, groupCtx := errgroup.WithContext(ctx)
	for w := range writers {
		group.Go(func() error {
			for i := range perWriter {
				created, err := createStubbornly(groupCtx, through, env.Gadget(namespace, fmt.Sprintf("w%d-%03d", w, i), map[string]any{"size": int64(i)}))
				if err != nil {
					return err
				}
				progress <- book.write(created.GetName(), created.GetUID())
			}
			return nil
		})
	}
	group.Go(func() error { return killInTurn(groupCtx, progress, writers*perWriter) })
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, client := range clients {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stored := map[string]types.UID{}
		for _, item := range list.Items {
			stored[item.GetName()] = item.GetUID()
		}
		if diff := cmp.Diff(book.written, stored); diff != "" {
			t.Errorf("acknowledged (-) and read through replica %d (+) differ:\n%s", i, diff)
		}
	}
	for diff := book.difference(); diff != ""; diff = book.difference() {
		if !pause(ctx) {
			t.Fatalf("acknowledged (-) and seen by the informer (+) differ:\n%s", diff)
		}
	}
	if book.deletes != 0 {
		t.Errorf("the informer saw %d deletions, want none", book.deletes)
	}
}

// killInTurn kills the first replica after a third of the writes and the second
// after two thirds; the killed one is started again before the next is killed.
func killInTurn(ctx context.Context, progress <-chan int, total int) error {
	for i, replica := range suite.annex.Replicas {
		for n := 0; n < total*(i+1)/3; {
			select {
			case n = <-progress:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := replica.Kill(); err != nil {
			return err
		}
		if err := replica.Restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// createStubbornly repeats a create that failed because a replica died. A name
// that exists was written by the attempt whose answer was lost.
func createStubbornly(ctx context.Context, client dynamic.ResourceInterface, gadget *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	for {
		created, err := client.Create(ctx, gadget, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			created, err = client.Get(ctx, gadget.GetName(), metav1.GetOptions{})
		}
		if err == nil {
			return created, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("creating %s: %w, last answer: %w", gadget.GetName(), context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func startInformer(ctx context.Context, t *testing.T, config *rest.Config, namespace string, book *ledger) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	informer := factory.ForResource(env.GadgetResource("v1")).Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    book.see,
		UpdateFunc: func(_, object any) { book.see(object) },
		DeleteFunc: book.loss,
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer never syncs")
	}
}
