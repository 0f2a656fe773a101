// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/measure"
	"github.com/kubeannex/annex/test/bench/report"
)

const (
	// stormAgents is how many agents restart unless it is set: for each, a
	// kube-apiserver looks at all objects once, so that 4,000 in every round would take it
	// an hour. stormAll has as many, once.
	stormAgents = 40
	// smokeStormAgents is the same for a smoke run.
	smokeStormAgents = 20
	// stormTimeout bounds one storm.
	stormTimeout = 10 * time.Minute
	// leastStorm is how long storms are repeated in a round (a third of that in a smoke run), so that a short one too
	// is long enough for the small request beside it and for the CPU time.
	leastStorm = 600 * time.Millisecond
)

// storm measures many agents that restart at the same moment and get the objects of their nodes again.
type storm struct {
	count  int
	least  time.Duration
	agents *agents
	// objects is how many objects each node has.
	objects []int
	// bystander is who sends small requests to the host meanwhile: the ordinary user of the side
	// host. By the default configuration of priority and fairness his level is global-default
	// and that of the agents, who are service accounts, is workload-low: he waits for a
	// server that is busy, not for the agents that wait for their turn.
	bystander *rest.Config
}

var (
	_ Scenario = &storm{}
	_ Titled   = &storm{}
)

func newStorm(settings Settings) *storm {
	s := &storm{count: stormAgents, least: leastStorm}
	if settings.Smoke {
		s.least /= 3
	}
	switch {
	case settings.Agents > 0:
		s.count = settings.Agents
	case settings.Smoke:
		s.count = smokeStormAgents
	}
	return s
}

// synchronization is one way in which an informer gets its objects.
type synchronization struct {
	name, title string
	// sync returns when the agent of a node has all objects and the server has accepted its watch.
	sync func(ctx context.Context, agent *restarted, c *cluster.Cluster, side cluster.Side) (*client.Watch, error)
}

// restarted is an agent that has nothing yet.
type restarted struct {
	*client.Client

	node int
	// want is how many objects its node has.
	want int
}

func synchronizations() []synchronization {
	return []synchronization{
		{"list", "LIST, RV=0, then WATCH", listAndWatch},
		{"stream", "WATCH with initial events", streamList},
	}
}

// Name implements Scenario.
func (s *storm) Name() string { return "restart-storm" }

// Title implements Titled.
func (s *storm) Title() string {
	return fmt.Sprintf("Restart storm: %d agents at once, each of one node", s.count)
}

// Metrics implements Scenario.
func (s *storm) Metrics() []Metric {
	var metrics []Metric
	for _, way := range synchronizations() {
		metrics = append(metrics,
			Metric{Name: way.name + ".time", Title: way.title + ": until all are synced", Unit: report.Seconds, Better: Lower},
			Metric{Name: way.name + ".cpu", Title: way.title + ": CPU an agent", Unit: report.Seconds, Better: Lower},
			Metric{Name: way.name + ".peak", Title: way.title + ": peak RSS of the API servers", Unit: report.Bytes, Better: Lower},
			Metric{Name: way.name + ".bystander", Title: way.title + ": p99 of GET of a ConfigMap on the host meanwhile", Unit: report.Seconds, Better: Lower},
			Metric{Name: way.name + ".refused", Title: way.title + ": such GETs put off (429)", Better: Lower},
		)
	}
	return metrics
}

// Prepare implements Scenario.
func (s *storm) Prepare(ctx context.Context, c *cluster.Cluster) error {
	host, err := c.Side(cluster.SideHost)
	if err != nil {
		return err
	}
	s.bystander = host.Config
	s.objects = make([]int, c.Sizes.Nodes)
	for i := range c.Sizes.Endpoints {
		s.objects[c.Sizes.Node(i)]++
	}
	s.agents, err = newAgents(ctx, c)
	return err
}

// Round implements Scenario.
func (s *storm) Round(ctx context.Context, c *cluster.Cluster, side cluster.Side) (Sample, error) {
	sample := Sample{Metrics: map[string]float64{}}
	for _, way := range synchronizations() {
		if err := s.measure(ctx, c, side, way, sample); err != nil {
			return Sample{}, fmt.Errorf("%s: %w", way.title, err)
		}
	}
	if count := s.agents.throttled.Swap(0); count > 0 {
		c.Progress("%s: %s has put %d requests off (429)", s.Name(), side.Name, count)
	}
	return sample, nil
}

// measure repeats storms, with pauses that are not measured, for some time.
func (s *storm) measure(ctx context.Context, c *cluster.Cluster, side cluster.Side, way synchronization, sample Sample) error {
	servers := apiServers(c, side)
	if err := measure.ResetPeak(servers...); err != nil {
		return err
	}
	bystander, err := newBystander(s.bystander)
	if err != nil {
		return err
	}
	defer bystander.close()
	var times []float64
	var total, cpu float64
	for total < s.least.Seconds() {
		took, used, err := s.once(ctx, c, side, way, bystander)
		if err != nil {
			return err
		}
		times = append(times, took.Seconds())
		total += took.Seconds()
		cpu += used
		if err := settle(ctx, side); err != nil {
			return err
		}
	}
	usage, err := measure.Processes(servers...)
	if err != nil {
		return err
	}
	sample.Metrics[way.name+".time"] = measure.Median(times)
	sample.Metrics[way.name+".cpu"] = cpu / float64(len(times)*s.count)
	sample.Metrics[way.name+".peak"] = float64(usage.Peak)
	sample.Metrics[way.name+".bystander"] = bystander.latencies.Summary().P99
	sample.Metrics[way.name+".refused"] = float64(bystander.throttled.Load())
	return nil
}

// once lets all agents start at the same moment, and ends them when all are synced.
// It returns how long that took and the CPU time of the servers over idle. A watch that
// ends before is an error.
func (s *storm) once(ctx context.Context, c *cluster.Cluster, side cluster.Side, way synchronization, bystander *bystander) (time.Duration, float64, error) {
	ctx, cancel := context.WithTimeout(ctx, stormTimeout)
	defer cancel()
	waiting, err := s.restart(side)
	if err != nil {
		return 0, 0, err
	}
	defer closeAll(waiting)
	pids := side.PIDs()
	before, err := measure.Processes(pids...)
	if err != nil {
		return 0, 0, err
	}
	stop := bystander.start(ctx)
	start := time.Now()
	var took time.Duration
	var after measure.Usage
	err = together(ctx, s.count, func(ctx context.Context, i int) (held, error) {
		return way.sync(ctx, waiting[i], c, side)
	}, func() (err error) {
		took = time.Since(start)
		after, err = measure.Processes(pids...)
		return err
	})
	if err := errors.Join(err, stop()); err != nil {
		return 0, 0, err
	}
	return took, after.Since(before).CPU.Seconds() - c.Idle[side.Name]*took.Seconds(), nil
}

// held is a watch that is kept.
type held interface {
	// Hold returns why it has ended.
	Hold() error
}

// errAllSynced ends watches.
var errAllSynced = errors.New("all are synced")

// together lets so many sync at the same moment and keeps their watches until all have, and
// then calls done. It ends at the first error, and a watch that ends before is one.
func together(ctx context.Context, count int, sync func(ctx context.Context, i int) (held, error), done func() error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var synced atomic.Int64
	return each(ctx, count, count, func(_ context.Context, i int) error {
		watch, err := sync(ctx, i)
		if err == nil && synced.Add(1) == int64(count) {
			end(cmp.Or(done(), errAllSynced))
		}
		if err == nil {
			err = watch.Hold()
		}
		// What has ended the others first is the reason.
		end(err)
		if cause := context.Cause(ctx); !errors.Is(cause, errAllSynced) {
			return cause
		}
		return nil
	})
}

// restart returns the agents, one of each node, again from the first when there are more.
func (s *storm) restart(side cluster.Side) ([]*restarted, error) {
	if err := s.agents.renew(side); err != nil {
		return nil, err
	}
	waiting := make([]*restarted, s.count)
	for i := range waiting {
		with, err := s.agents.connect(side)
		if err != nil {
			return nil, err
		}
		node := i % len(s.objects)
		waiting[i] = &restarted{Client: with, node: node, want: s.objects[node]}
	}
	return waiting, nil
}

// closeAll ends the agents and their watches.
func closeAll(waiting []*restarted) {
	for _, agent := range waiting {
		agent.Close()
	}
}

// errWrongAnswer says that a server has answered with something else than there is.
var errWrongAnswer = errors.New("a wrong answer")

// listAndWatch is what informers do that do not stream lists, or that a server has
// refused to.
func listAndWatch(ctx context.Context, agent *restarted, c *cluster.Cluster, side cluster.Side) (*client.Watch, error) {
	selection := c.Sizes.OnNode(agent.node)
	answer, err := agent.Get(ctx, side.URL(dataset.Endpoints, selection, url.Values{"resourceVersion": {"0"}}), false)
	if err != nil {
		return nil, err
	}
	list, err := answer.List()
	if err != nil {
		return nil, err
	}
	if list.Items != agent.want || list.Continue != "" {
		return nil, fmt.Errorf("%w: the list of %s has %d objects, wanted are %d", errWrongAnswer, dataset.NodeName(agent.node), list.Items, agent.want)
	}
	return agent.Watch(ctx, watchURL(c, side, agent.node, list.ResourceVersion))
}

// streamList is what informers of client-go 0.37 do first: tools/cache
// Reflector.watchList, with the feature WatchListClient that is on by default.
func streamList(ctx context.Context, agent *restarted, c *cluster.Cluster, side cluster.Side) (*client.Watch, error) {
	watch, err := agent.Watch(ctx, side.URL(dataset.Endpoints, c.Sizes.OnNode(agent.node), url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"},
		"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
	}))
	if err != nil {
		return nil, err
	}
	for items := 0; ; items++ {
		event, err := watch.Next()
		if err != nil {
			return nil, err
		}
		if event.Type == "ADDED" {
			continue
		}
		if event.Type != "BOOKMARK" || event.Text("metadata", "annotations", client.InitialEventsEnd) != "true" || items != agent.want {
			return nil, fmt.Errorf("%w: the watch of %s has %d objects and then a %s, wanted are %d", errWrongAnswer, dataset.NodeName(agent.node), items, event.Type, agent.want)
		}
		return watch, nil
	}
}

// apiServers are the processes of a side without databases.
func apiServers(c *cluster.Cluster, side cluster.Side) []int {
	var pids []int
	for _, process := range side.Processes {
		if process == c.Host.APIServers[0].Process || process == c.Annex.Replicas[0].Process {
			pids = append(pids, process.PID())
		}
	}
	return pids
}

// Close implements Scenario.
func (s *storm) Close(ctx context.Context) error { return s.agents.close(ctx) }

const (
	// bystanderPause is the time between two requests of the bystander.
	bystanderPause = 20 * time.Millisecond
	// bystanderPath is what it reads, a few kilobytes that every cluster has.
	bystanderPath = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
)

// bystander reads something small from the host at a fixed pace, whether or not
// the answer before has come. A request that is put off is sent again, and its latency is that of all.
type bystander struct {
	config    *rest.Config
	latencies measure.Latencies
	throttled client.Throttled
	recorder  *measure.Recorder
	client    *client.Client
}

func newBystander(config *rest.Config) (*bystander, error) {
	b := &bystander{config: config}
	b.recorder = b.latencies.Recorder(0)
	var err error
	b.client, err = client.NewAgent(config, &b.throttled)
	return b, err
}

func (b *bystander) close() { b.client.Close() }

// start begins to send requests. The function that it returns ends that and waits for the answers.
func (b *bystander) start(ctx context.Context) (stop func() error) {
	pace, end := context.WithCancel(ctx)
	requests, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(bystanderPause)
		defer ticker.Stop()
		for pace.Err() == nil {
			requests.Go(func() error { return b.request(ctx) })
			select {
			case <-ticker.C:
			case <-pace.Done():
			}
		}
	}()
	return func() error {
		end()
		<-done
		return requests.Wait()
	}
}

func (b *bystander) request(ctx context.Context) error {
	sent := time.Now()
	if err := b.client.Send(ctx, http.MethodGet, b.config.Host+bystanderPath, "", nil); err != nil {
		return fmt.Errorf("the bystander: %w", err)
	}
	b.recorder.Since(sent)
	return nil
}
