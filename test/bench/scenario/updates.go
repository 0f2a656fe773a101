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

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
)

// seenField carries the number of an update. Its values are as long as the times
// that it has otherwise, so that the size of objects stays.
const seenField = "lastSeen"

// updates are changes of endpoints, each with a number of its own, and what
// watchers saw of them. Update n is of the object of node n modulo the nodes.
type updates struct {
	first, count, nodes int

	// start is when the first was sent. Times are nanoseconds since then.
	start time.Time
	sent  []atomic.Int64
	// took are the times from sending a request to its event, 0 until it is there.
	took []atomic.Int64
	left atomic.Int64
	// seen is closed when every update was seen.
	seen chan struct{}
}

func newUpdates(first, count, nodes int) *updates {
	u := &updates{
		first: first, count: count, nodes: nodes, start: time.Now(),
		sent: make([]atomic.Int64, count), took: make([]atomic.Int64, count), seen: make(chan struct{}),
	}
	u.left.Store(int64(count))
	return u
}

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
	case i%u.nodes != node || event.Text("spec", "nodeName") != dataset.NodeName(node):
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

// ownEndpoints are one endpoint for every node that are not of the data set. Only
// clients of their own, one a connection, write to them.
type ownEndpoints struct {
	shape dataset.Shape
	// first is the number of the first of them, count how many they are.
	first, count int
	writers      map[string][]*client.Client
}

func newOwnEndpoints(c *cluster.Cluster, nodes int) (*ownEndpoints, error) {
	// The first object after the data set that is on node 0.
	turns := (c.Sizes.Endpoints + c.Sizes.Nodes - 1) / c.Sizes.Nodes
	own := &ownEndpoints{shape: c.Sizes.Shape, first: turns * c.Sizes.Nodes, count: nodes, writers: map[string][]*client.Client{}}
	for _, side := range c.Sides() {
		for range crudClients {
			writer, err := client.New(side.Config)
			if err != nil {
				return nil, err
			}
			own.writers[side.Name] = append(own.writers[side.Name], writer)
		}
	}
	return own, nil
}

func (o *ownEndpoints) url(side cluster.Side, node int) string {
	namespace := dataset.NamespaceName(o.shape.Namespace(o.first + node))
	return side.Config.Host + dataset.CollectionPath(side.Group, dataset.Version, dataset.Endpoints, namespace)
}

func (o *ownEndpoints) name(node int) string {
	return "/" + dataset.ObjectName(dataset.Endpoints, o.first+node)
}

// byManager makes a change that of the kind's controller, so that managedFields stay as they are.
func byManager() string { return "?fieldManager=" + dataset.Endpoints.Manager() }

// create creates all of them on a side.
func (o *ownEndpoints) create(ctx context.Context, side cluster.Side) error {
	return each(ctx, o.count, crudClients, func(ctx context.Context, i int) error {
		body, err := o.shape.JSON(side.Group, dataset.Endpoints, o.first+i)
		if err != nil {
			return err
		}
		writer := o.writers[side.Name][i%crudClients]
		return writer.Send(ctx, http.MethodPost, o.url(side, i)+byManager(), "application/json", body)
	})
}

// remove deletes all of them on a side.
func (o *ownEndpoints) remove(ctx context.Context, side cluster.Side) error {
	return each(ctx, o.count, crudClients, func(ctx context.Context, i int) error {
		writer := o.writers[side.Name][i%crudClients]
		return writer.Send(ctx, http.MethodDelete, o.url(side, i)+o.name(i), "application/json", nil)
	})
}

// update sends updates from all clients at once and returns how long that took.
func (o *ownEndpoints) update(ctx context.Context, side cluster.Side, u *updates) (time.Duration, error) {
	start := time.Now()
	err := each(ctx, u.count, crudClients, func(ctx context.Context, i int) error {
		u.sending(i)
		node := i % u.nodes
		writer := o.writers[side.Name][i%crudClients]
		return writer.Send(ctx, http.MethodPatch, o.url(side, node)+o.name(node)+byManager(), "application/merge-patch+json", u.patch(i))
	})
	return time.Since(start), err
}

func (o *ownEndpoints) close() {
	for _, writers := range o.writers {
		for _, writer := range writers {
			writer.Close()
		}
	}
}
