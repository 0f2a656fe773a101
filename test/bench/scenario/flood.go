// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
)

const (
	// The clients of a flood: those that LIST the endpoints of one node after another,
	// those that LIST all of them, and those that create, patch and delete endpoints.
	floodListers = 12
	floodWholes  = 1
	floodWriters = 3
	// floodNode is the node of the endpoints that a flood makes: no LIST by field asks for it.
	floodNode = "flood"
)

// flood is what clients do to the endpoints of a side, each one request after
// another without a pause. A client that is answered 429 waits as long as the answer says.
type flood struct {
	side  cluster.Side
	sizes cluster.Sizes
	// onNode is the number of endpoints of each node.
	onNode    []int
	listers   [floodListers]*client.Client
	wholes    [floodWholes]*client.Client
	writers   [floodWriters]*rest.RESTClient
	throttled client.Throttled
	// present says of each writer that its endpoint exists, and gone how many it has deleted:
	// each is another one, and lists counts on over all floods, so that annex, which remembers for
	// some seconds who may do what, has to ask in all of them alike.
	present [floodWriters]bool
	gone    [floodWriters]int
	lists   [floodListers]int
}

func newFlood(side cluster.Side, sizes cluster.Sizes) (*flood, error) {
	f := &flood{side: side, sizes: sizes, onNode: make([]int, sizes.Nodes)}
	for i := range sizes.Endpoints {
		f.onNode[sizes.Node(i)]++
	}
	var err error
	for n := range f.listers {
		if f.listers[n], err = client.NewAgent(side.Config, &f.throttled); err != nil {
			return nil, err
		}
	}
	for n := range f.wholes {
		if f.wholes[n], err = client.NewAgent(side.Config, &f.throttled); err != nil {
			return nil, err
		}
	}
	for n := range f.writers {
		config := dataset.Unlimited(side.Config)
		config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
		// Clients with a dialer of their own share no connection.
		config.Dial = (&net.Dialer{}).DialContext
		if f.writers[n], err = rest.UnversionedRESTClientFor(config); err != nil {
			return nil, fmt.Errorf("making a client: %w", err)
		}
	}
	return f, nil
}

// runningFlood is a flood that goes on until it is stopped.
type runningFlood struct {
	flood     *flood
	begin     time.Time
	throttled int64
	group     *errgroup.Group
	stopped   atomic.Bool
	// endReads cuts requests that only read. Those that write are waited for.
	endReads              context.CancelFunc
	lists, wholes, writes atomic.Int64
}

// floodResult is how many requests were answered in a second.
type floodResult struct{ lists, wholes, writes, throttled float64 }

func (r floodResult) record(sample Sample) {
	sample.Metrics["answered.lists"], sample.Metrics["answered.wholes"] = r.lists, r.wholes
	sample.Metrics["answered.writes"], sample.Metrics["throttled"] = r.writes, r.throttled
}

func (f *flood) start(ctx context.Context) *runningFlood {
	r := &runningFlood{flood: f, begin: time.Now(), throttled: f.throttled.Load()}
	r.group, ctx = errgroup.WithContext(ctx)
	var reading context.Context
	reading, r.endReads = context.WithCancel(ctx)
	for n, with := range f.listers {
		r.repeat(&r.lists, func(turn int) error {
			f.lists[n]++
			return f.list(reading, with, f.lists[n]*floodListers+n, turn)
		})
	}
	for _, with := range f.wholes {
		r.repeat(&r.wholes, func(int) error { return f.listAll(reading, with) })
	}
	for n := range f.writers {
		r.repeat(&r.writes, func(turn int) error { return f.write(ctx, n, turn) })
	}
	return r
}

func (r *runningFlood) repeat(count *atomic.Int64, send func(turn int) error) {
	r.group.Go(func() error {
		for turn := 0; !r.stopped.Load(); turn++ {
			err := send(turn)
			if errors.Is(err, context.Canceled) && r.stopped.Load() {
				return nil
			}
			if err != nil {
				return err
			}
			count.Add(1)
		}
		return nil
	})
}

// stop waits for the answers to all requests that are under way, so that the
// servers have nothing left to do, and removes what was written.
func (r *runningFlood) stop(ctx context.Context) (floodResult, error) {
	seconds := time.Since(r.begin).Seconds()
	r.stopped.Store(true)
	r.endReads()
	if err := r.group.Wait(); err != nil {
		return floodResult{}, err
	}
	result := floodResult{
		lists: float64(r.lists.Load()) / seconds, wholes: float64(r.wholes.Load()) / seconds,
		writes: float64(r.writes.Load()) / seconds, throttled: float64(r.flood.throttled.Load()-r.throttled) / seconds,
	}
	return result, r.flood.clean(ctx)
}

// list reads the endpoints of one node, in turns from the cache and as they are now.
func (f *flood) list(ctx context.Context, with *client.Client, node, turn int) error {
	node %= f.sizes.Nodes
	fresh := freshnesses()[turn%len(freshnesses())]
	answer, err := with.Get(ctx, f.side.URL(dataset.Endpoints, f.sizes.OnNode(node), fresh.query), false)
	if err != nil {
		return err
	}
	return answer.Expect(f.onNode[node])
}

// listAll reads all endpoints. Those of the flood itself come and go meanwhile.
func (f *flood) listAll(ctx context.Context, with *client.Client) error {
	answer, err := with.Get(ctx, f.side.URL(dataset.Endpoints, f.sizes.All(), url.Values{"resourceVersion": {"0"}}), false)
	if err != nil {
		return err
	}
	list, err := answer.List()
	if err != nil {
		return err
	}
	if more := list.Items - f.sizes.Endpoints; more < 0 || more > floodWriters {
		return fmt.Errorf("a full LIST has %d items, wanted are %d and at most %d more", list.Items, f.sizes.Endpoints, floodWriters)
	}
	return nil
}

// write creates, patches or deletes the endpoint of a writer, in turn.
func (f *flood) write(ctx context.Context, n, turn int) error {
	i := f.object(n)
	collection := dataset.CollectionPath(f.side.Group, dataset.Version, dataset.Endpoints, dataset.NamespaceName(f.sizes.Namespace(i)))
	var request *rest.Request
	creates, deletes := !f.present[n], turn%3 == 2
	switch {
	case creates:
		object := f.sizes.Object(f.side.Group, dataset.Endpoints, i)
		if err := unstructured.SetNestedField(object.Object, floodNode, "spec", "nodeName"); err != nil {
			return fmt.Errorf("changing an endpoint: %w", err)
		}
		body, err := object.MarshalJSON()
		if err != nil {
			return fmt.Errorf("encoding an endpoint: %w", err)
		}
		request = f.writers[n].Post().AbsPath(collection).SetHeader("Content-Type", "application/json").Body(body)
	case deletes:
		request = f.writers[n].Delete().AbsPath(collection, dataset.ObjectName(dataset.Endpoints, i))
	default:
		request = f.writers[n].Patch(types.MergePatchType).AbsPath(collection, dataset.ObjectName(dataset.Endpoints, i)).
			Body([]byte(`{"status":{"` + stateField + `":"flood"}}`))
	}
	if err := f.send(ctx, request); err != nil {
		return err
	}
	f.present[n] = creates || !deletes
	if !f.present[n] {
		f.gone[n]++
	}
	return nil
}

// object is the number of the endpoint of a writer.
func (f *flood) object(n int) int { return f.sizes.Endpoints + f.gone[n]*floodWriters + n }

// send repeats a request when the server asks for it.
func (f *flood) send(ctx context.Context, request *rest.Request) error {
	for {
		err := request.MaxRetries(0).Do(ctx).Error()
		seconds, later := apierrors.SuggestsClientDelay(err)
		if !later || !apierrors.IsTooManyRequests(err) {
			return err
		}
		f.throttled.Add(1)
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// clean deletes the endpoints of all writers.
func (f *flood) clean(ctx context.Context) error {
	const deletes = 2
	for n, present := range f.present {
		if !present {
			continue
		}
		if err := ignoreNotFound(f.write(ctx, n, deletes)); err != nil {
			return fmt.Errorf("deleting an endpoint of the flood: %w", err)
		}
		f.present[n] = false
	}
	return nil
}

// close removes everything.
func (f *flood) close(ctx context.Context) error {
	err := f.clean(ctx)
	for _, with := range f.listers {
		with.Close()
	}
	for _, with := range f.wholes {
		with.Close()
	}
	return err
}
