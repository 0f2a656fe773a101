// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
	"github.com/kubeannex/annex/test/bench/report"
)

const (
	// crudClients is how many clients work at the same time.
	crudClients = 16
	// stateField is what UPDATE and PATCH change.
	stateField = "state"
)

// crud measures requests for single endpoints by several clients at once, one verb after
// another, each on all sides in turn. Every round creates its own objects and deletes them again, and has new
// certificates: annex remembers for some seconds who may do what, and has to ask in every round alike.
type crud struct {
	cluster *cluster.Cluster
	// requests is how many of each verb are sent in a round.
	requests int
	// first is the number of the first object that is not of the data set.
	first int
	// shape makes the objects.
	shape dataset.Shape
	// users are those of each side, by its name.
	users map[string]*crudUsers
}

// crudUsers are the clients of a side and their objects.
type crudUsers struct {
	side cluster.Side
	// probe is an object of the data set.
	probe *unstructured.Unstructured
	// repeated counts answers after which client-go asks again by itself.
	repeated atomic.Int64
	// first is the number of the first of the objects, which no other side has.
	first   int
	clients []dynamic.NamespaceableResourceInterface
	// transports are those of the clients.
	transports []http.RoundTripper
	// objects are the present ones, by their number from first on. A round leaves none.
	objects []*unstructured.Unstructured
}

var (
	_ Scenario = &crud{}
	_ Titled   = &crud{}
	_ Stepped  = &crud{}
)

func newCRUD(smoke bool) *crud {
	s := &crud{requests: 240, users: map[string]*crudUsers{}}
	if smoke {
		s.requests /= 3
	}
	return s
}

// verb is one kind of request for the i-th object.
type verb struct {
	name string
	send func(users *crudUsers, ctx context.Context, client dynamic.NamespaceableResourceInterface, i int) error
}

// verbs are in the order in which a round needs them.
func verbs() []verb {
	return []verb{
		{"CREATE", (*crudUsers).create}, {"GET", (*crudUsers).get}, {"UPDATE", (*crudUsers).update},
		{"PATCH", (*crudUsers).patch}, {"DELETE", (*crudUsers).remove},
	}
}

// Name implements Scenario.
func (s *crud) Name() string { return "crud" }

// Title implements Titled.
func (s *crud) Title() string { return fmt.Sprintf("Single objects, %d clients", crudClients) }

// Metrics implements Scenario.
func (s *crud) Metrics() []Metric {
	var metrics []Metric
	for _, v := range verbs() {
		name := strings.ToLower(v.name)
		metrics = append(metrics,
			Metric{Name: name + ".rate", Title: v.name + ", throughput", Unit: report.RequestsPerSecond, Better: Higher},
			Metric{Name: name + ".p50", Title: v.name + ", p50", Unit: report.Seconds, Better: Lower},
			Metric{Name: name + ".p99", Title: v.name + ", p99", Unit: report.Seconds, Better: Lower},
			Metric{Name: name + ".cpu", Title: v.name + ", CPU a request", Unit: report.Seconds, Better: Lower},
		)
	}
	return append(metrics, Metric{Name: "repeated", Title: "requests repeated by client-go (429, 5xx)", Better: Lower})
}

// Prepare implements Scenario.
func (s *crud) Prepare(_ context.Context, c *cluster.Cluster) error {
	s.cluster, s.first, s.shape = c, c.Sizes.Endpoints, c.Sizes.Shape
	for n, side := range c.Sides() {
		s.users[side.Name] = &crudUsers{
			side: side, first: s.first + n*s.requests, probe: s.shape.Object(side.Group, dataset.Endpoints, 0),
		}
	}
	return nil
}

// begin makes the objects of a round and connects new clients, with an answer that is not measured.
func (s *crud) begin(ctx context.Context, users *crudUsers) error {
	side, err := s.cluster.Renewed(users.side)
	if err != nil {
		return err
	}
	users.clients = nil
	for range crudClients {
		config := rest.CopyConfig(side.Config)
		// Clients with a dialer of their own share no connection.
		config.Dial = (&net.Dialer{}).DialContext
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			users.transports = append(users.transports, next)
			return &repeatCounter{next, &users.repeated}
		})
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("making a client: %w", err)
		}
		connected := client.Resource(side.Resource(dataset.Endpoints))
		if _, err := connected.Namespace(users.probe.GetNamespace()).Get(ctx, users.probe.GetName(), metav1.GetOptions{}); err != nil {
			return fmt.Errorf("connecting a client: %w", err)
		}
		users.clients = append(users.clients, connected)
	}
	users.objects = make([]*unstructured.Unstructured, s.requests)
	for i := range users.objects {
		users.objects[i] = s.shape.Object(side.Group, dataset.Endpoints, users.first+i)
	}
	return nil
}

// end closes the connections of a round that has left no objects.
func (s *crudUsers) end() {
	for _, transport := range s.transports {
		utilnet.CloseIdleConnectionsFor(transport)
	}
	s.transports, s.objects = nil, nil
}

// repeatCounter counts the answers after which client-go asks again without a word to its caller: by
// client-go/rest checkWait, those with 429 or a server's error that say when.
type repeatCounter struct {
	next  http.RoundTripper
	count *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *repeatCounter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err == nil && (response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError) {
		c.count.Add(1)
	}
	return response, err
}

// Steps implements Stepped.
func (s *crud) Steps() int { return len(verbs()) }

// Step implements Stepped: it measures one verb.
func (s *crud) Step(ctx context.Context, _ *cluster.Cluster, side cluster.Side, step int) (Sample, error) {
	users := s.users[side.Name]
	if step == 0 {
		if err := s.begin(ctx, users); err != nil {
			return Sample{}, err
		}
	}
	sample, v := Sample{Metrics: map[string]float64{}}, verbs()[step]
	if err := users.measure(ctx, v, sample); err != nil {
		return Sample{}, fmt.Errorf("%s: %w", v.name, err)
	}
	if step == s.Steps()-1 {
		users.end()
		sample.Metrics["repeated"] = float64(users.repeated.Swap(0))
	}
	return sample, nil
}

// Round implements Scenario: all steps on one side.
func (s *crud) Round(ctx context.Context, c *cluster.Cluster, side cluster.Side) (Sample, error) {
	return allSteps(ctx, s, c, side)
}

func (s *crudUsers) measure(ctx context.Context, v verb, sample Sample) error {
	pids := s.side.PIDs()
	before, err := measure.Processes(pids...)
	if err != nil {
		return err
	}
	requests := len(s.objects)
	latencies := &measure.Latencies{}
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for n, client := range s.clients {
		recorder := latencies.Recorder(requests/crudClients + 1)
		group.Go(func() error {
			for i := n; i < requests; i += crudClients {
				sent := time.Now()
				if err := v.send(s, ctx, client, i); err != nil {
					return err
				}
				recorder.Since(sent)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(start)
	after, err := measure.Processes(pids...)
	if err != nil {
		return err
	}
	name, summary := strings.ToLower(v.name), latencies.Summary()
	sample.Metrics[name+".rate"] = float64(requests) / took.Seconds()
	sample.Metrics[name+".p50"], sample.Metrics[name+".p99"] = summary.Median, summary.P99
	sample.Metrics[name+".cpu"] = after.Since(before).CPU.Seconds() / float64(requests)
	return nil
}

func (s *crudUsers) create(ctx context.Context, client dynamic.NamespaceableResourceInterface, i int) error {
	object := s.objects[i]
	created, err := client.Namespace(object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.objects[i] = created
	return nil
}

func (s *crudUsers) get(ctx context.Context, client dynamic.NamespaceableResourceInterface, i int) error {
	object := s.objects[i]
	got, err := client.Namespace(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got.GetUID() != object.GetUID() || got.GetResourceVersion() != object.GetResourceVersion() {
		return fmt.Errorf("%s is not what was created", object.GetName())
	}
	return nil
}

func (s *crudUsers) update(ctx context.Context, client dynamic.NamespaceableResourceInterface, i int) error {
	object := s.objects[i]
	if err := unstructured.SetNestedField(object.Object, "updated", "status", stateField); err != nil {
		return fmt.Errorf("changing %s: %w", object.GetName(), err)
	}
	updated, err := client.Namespace(object.GetNamespace()).Update(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	s.objects[i] = updated
	return s.changed(i, "updated")
}

func (s *crudUsers) patch(ctx context.Context, client dynamic.NamespaceableResourceInterface, i int) error {
	object := s.objects[i]
	patch := []byte(`{"status":{"` + stateField + `":"patched"}}`)
	patched, err := client.Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	s.objects[i] = patched
	return s.changed(i, "patched")
}

// changed checks what a server has answered to a change.
func (s *crudUsers) changed(i int, want string) error {
	object := s.objects[i]
	state, _, err := unstructured.NestedString(object.Object, "status", stateField)
	if err == nil && state != want {
		err = fmt.Errorf("the state of %s is %q instead of %q", object.GetName(), state, want)
	}
	return err
}

func (s *crudUsers) remove(ctx context.Context, client dynamic.NamespaceableResourceInterface, i int) error {
	object := s.objects[i]
	return client.Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{})
}

// Close implements Scenario. After a round that failed it deletes what is left of it.
func (s *crud) Close(ctx context.Context) error {
	for _, users := range s.users {
		for i, object := range users.objects {
			err := users.remove(ctx, users.clients[i%crudClients], i)
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting %s: %w", object.GetName(), err)
			}
		}
	}
	return nil
}
