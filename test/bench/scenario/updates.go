// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
)

// seenField carries the number of an update. Its values are as long as the times
// that it has otherwise, so that the size of objects stays.
const seenField = "lastSeen"

// ownLabel, with ownValue, is what created endpoints have and no other.
const ownLabel, ownValue = "fanout", "own"

// updates are changes of endpoints, each with a number of its own, and what
// watchers saw of them. Update n is of the object of node n modulo the nodes: two that
// follow each other are of the same object only when there are fewer nodes, so that
// a server that remembers who may change an object has to ask in all rounds alike.
type updates struct {
	first, count, nodes int
	// offset is the number of the first node.
	offset int

	// start is when the first was sent. Times are nanoseconds since then.
	start time.Time
	sent  []atomic.Int64
	// took are the times from sending a request to its event, 0 until it is there.
	took []atomic.Int64
	left atomic.Int64
	// seen is closed when every update was seen.
	seen chan struct{}
}

func newUpdates(first, count, nodes, offset int) *updates {
	u := &updates{
		first: first, count: count, nodes: nodes, offset: offset, start: time.Now(),
		sent: make([]atomic.Int64, count), took: make([]atomic.Int64, count), seen: make(chan struct{}),
	}
	u.left.Store(int64(count))
	return u
}

// object is the number of the object of the i-th update: that of its node without the offset.
func (u *updates) object(i int) int { return (u.first + i) % u.nodes }

// patch is the merge patch of the i-th update.
func (u *updates) patch(i int) []byte {
	return fmt.Appendf(nil, `{"status":{"`+seenField+`":"%020d"}}`, u.first+i)
}

// sending notes that the i-th update is about to be sent.
func (u *updates) sending(i int) { u.sent[i].Store(int64(time.Since(u.start)) + 1) }

// event checks what the watcher of a node has got, and notes when.
func (u *updates) event(node int, event client.Event) error {
	now := int64(time.Since(u.start)) + 1
	number, err := strconv.Atoi(event.Text("status", seenField))
	i := number - u.first
	name := event.Text("metadata", "name")
	switch {
	case err != nil || event.Type != "MODIFIED" || i < 0 || i >= u.count || u.sent[i].Load() == 0:
		return fmt.Errorf("the watcher of %s got a %s of %s that nobody sent", dataset.NodeName(node), event.Type, name)
	case u.offset+u.object(i) != node || event.Text("spec", "nodeName") != dataset.NodeName(node):
		return fmt.Errorf("the watcher of %s got the event of %s", dataset.NodeName(node), name)
	case !u.took[i].CompareAndSwap(0, max(1, now-u.sent[i].Load())):
		return fmt.Errorf("the watcher of %s got an event of %s twice", dataset.NodeName(node), name)
	}
	if u.left.Add(-1) == 0 {
		close(u.seen)
	}
	return nil
}

// wait waits until every update was seen.
func (u *updates) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	select {
	case <-u.seen:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d events did not arrive: %w", u.left.Load(), u.count, context.Cause(ctx))
	}
}

// latencies sums up the times from the request to the event.
func (u *updates) latencies() measure.Summary {
	seconds := make([]float64, u.count)
	for i := range u.took {
		seconds[i] = time.Duration(u.took[i].Load()).Seconds()
	}
	return measure.Summarize(seconds)
}

// ownEndpoints are one endpoint for every watcher, which nobody else writes to. They are the
// first of the data set, whose size an update leaves as it is, unless another side has
// those: then they are further ones, of nodes of their own.
type ownEndpoints struct {
	side  cluster.Side
	shape dataset.Shape
	// first is the number of the first of them, count how many they are.
	first, count int
	// offset is the number of the node of the first of them.
	offset int
	// created says that they are not of the data set.
	created bool
	// writers are clients with a connection each.
	writers []*client.Client
}

// newOwnEndpoints returns those of a side. None exist but those of the data set.
func newOwnEndpoints(c *cluster.Cluster, side cluster.Side, nodes int, further bool) (*ownEndpoints, error) {
	own := &ownEndpoints{side: side, shape: c.Sizes.Shape, count: nodes}
	if further {
		own.first, own.offset = c.Sizes.Endpoints, c.Sizes.Nodes
	}
	for range crudClients {
		writer, err := client.New(side.Config)
		if err != nil {
			return nil, err
		}
		own.writers = append(own.writers, writer)
	}
	return own, nil
}

func (o *ownEndpoints) url(i int) string {
	namespace := dataset.NamespaceName(o.shape.Namespace(o.first + i))
	return o.side.Config.Host + dataset.CollectionPath(o.side.Group, dataset.Version, dataset.Endpoints, namespace)
}

func (o *ownEndpoints) name(i int) string {
	return "/" + dataset.ObjectName(dataset.Endpoints, o.first+i)
}

// byManager makes a change that of the kind's controller, so that managedFields stay as they are.
func byManager() string { return "?fieldManager=" + dataset.Endpoints.Manager() }

// create creates all of them. remove deletes them also after an error.
func (o *ownEndpoints) create(ctx context.Context) error {
	o.created = true
	return each(ctx, o.count, crudClients, func(ctx context.Context, i int) error {
		object := o.shape.Object(o.side.Group, dataset.Endpoints, o.first+i)
		if err := unstructured.SetNestedField(object.Object, dataset.NodeName(o.offset+i), "spec", "nodeName"); err != nil {
			return fmt.Errorf("changing an endpoint: %w", err)
		}
		if err := unstructured.SetNestedField(object.Object, ownValue, "metadata", "labels", ownLabel); err != nil {
			return fmt.Errorf("changing an endpoint: %w", err)
		}
		body, err := object.MarshalJSON()
		if err != nil {
			return fmt.Errorf("encoding an endpoint: %w", err)
		}
		return o.writers[i%crudClients].Send(ctx, http.MethodPost, o.url(i)+byManager(), "application/json", body)
	})
}

// remove deletes those that were created, with one request for each namespace.
func (o *ownEndpoints) remove(ctx context.Context) error {
	if !o.created {
		return nil
	}
	return each(ctx, o.shape.Namespaces, crudClients, func(ctx context.Context, n int) error {
		collection := dataset.CollectionPath(o.side.Group, dataset.Version, dataset.Endpoints, dataset.NamespaceName(n))
		address := o.side.Config.Host + collection + "?labelSelector=" + ownLabel + "%3D" + ownValue
		return o.writers[n%crudClients].Send(ctx, http.MethodDelete, address, "application/json", nil)
	})
}

// update sends updates from all clients at once and returns how long that took.
func (o *ownEndpoints) update(ctx context.Context, u *updates) (time.Duration, error) {
	start := time.Now()
	err := each(ctx, u.count, crudClients, func(ctx context.Context, i int) error {
		u.sending(i)
		object := u.object(i)
		return o.writers[i%crudClients].Send(ctx, http.MethodPatch, o.url(object)+o.name(object)+byManager(), "application/merge-patch+json", u.patch(i))
	})
	return time.Since(start), err
}

func (o *ownEndpoints) close() {
	for _, writer := range o.writers {
		writer.Close()
	}
}
