// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"time"

	"github.com/kubeannex/annex/test/bench/client"
	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
	"github.com/kubeannex/annex/test/bench/report"
)

const (
	// pageSize is the limit with which kubectl and most clients read in pages.
	pageSize = 500
	// mostPages is how many pages are read: the next ones cost the same.
	mostPages = 20
)

// fullPace measures LISTs that take long. At full size one is enough for a round.
func fullPace() pace {
	return pace{atLeast: 1, atMost: 20, budget: 300 * time.Millisecond, apart: true}
}

// fullList is one way to read all objects of a kind.
type fullList struct {
	name, title string
	kind        dataset.Kind
	query       url.Values
	compressed  bool
}

func (l fullList) send(ctx context.Context, with *client.Client, c *cluster.Cluster, side cluster.Side) (client.Answer, func() error, error) {
	answer, err := with.Get(ctx, side.URL(l.kind, c.Sizes.All(), l.query), l.compressed)
	return answer, func() error { return answer.Expect(c.Sizes.Count(l.kind)) }, err
}

func (l fullList) metrics() []Metric {
	metrics := []Metric{
		{Name: l.name + ".time", Title: l.title, Unit: report.Seconds, Better: Lower},
		{Name: l.name + ".cpu", Title: l.title + ", CPU", Unit: report.Seconds, Better: Lower},
	}
	if l.compressed {
		metrics = append(metrics, Metric{Name: l.name + ".size", Title: l.title + ", size", Unit: report.Bytes, Better: Lower})
	}
	return metrics
}

func (l fullList) record(sample Sample, got cost) {
	sample.Metrics[l.name+".time"] = got.median()
	sample.Metrics[l.name+".cpu"] = got.cpu
	if l.compressed {
		sample.Metrics[l.name+".size"] = float64(got.bytes)
	}
}

// listFull measures LISTs of all objects of a kind, each on all sides in turn.
type listFull struct {
	name, title string
	// lists are read in one answer each.
	lists []fullList
	// pages says that endpoints are read in pages, too.
	pages   bool
	clients clients
	// limit is what the first list is compared to besides. Nil means nothing is.
	limit *limit
}

var (
	_ Scenario = &listFull{}
	_ Sided    = &listFull{}
	_ Titled   = &listFull{}
	_ Paced    = &listFull{}
	_ Stepped  = &listFull{}
)

// Rounds implements Paced. The warm-up was Cluster.Warm, which reads all objects on
// every side; another would take a minute.
func (s *listFull) Rounds(asked int) (measured, warmup int) { return asked, 0 }

// newListFull reads all endpoints in the ways that clients do. Both kinds of freshness
// are compressed alike, so one of them is enough for that.
func newListFull() *listFull {
	s := &listFull{name: "list-full", title: "LIST of all endpoints", pages: true, limit: &limit{}}
	for _, fresh := range freshnesses() {
		s.lists = append(s.lists, plainList(fresh))
	}
	cached := freshnesses()[0]
	s.lists = append(s.lists, fullList{
		name: cached.name + ".gzip", title: "full LIST, " + cached.title + ", gzip", query: cached.query, compressed: true,
	})
	return s
}

// plainList reads all endpoints without compression.
func plainList(fresh freshness) fullList {
	return fullList{name: fresh.name + ".plain", title: "full LIST, " + fresh.title, query: fresh.query}
}

// Name implements Scenario.
func (s *listFull) Name() string { return s.name }

// Title implements Titled.
func (s *listFull) Title() string { return s.title }

func (s *listFull) inPages() fullList {
	return fullList{name: "pages", title: fmt.Sprintf("LIST of %d pages of %d at most", mostPages, pageSize), kind: dataset.Endpoints}
}

// Metrics implements Scenario.
func (s *listFull) Metrics() []Metric {
	var metrics []Metric
	for _, list := range s.lists {
		metrics = append(metrics, list.metrics()...)
	}
	if s.pages {
		metrics = append(metrics, s.inPages().metrics()...)
	}
	if s.limit != nil {
		metrics = append(metrics, rateOf(s.lists[0]))
	}
	return metrics
}

// Sides implements Sided. The physical limit comes last, so that the other columns are
// those of every table.
func (s *listFull) Sides(c *cluster.Cluster) []cluster.Side {
	if s.limit == nil {
		return c.Sides()
	}
	return append(c.Sides(), s.limit.side())
}

// Prepare implements Scenario.
func (s *listFull) Prepare(ctx context.Context, c *cluster.Cluster) error {
	if s.limit != nil {
		if err := s.limit.start(ctx, c, s.lists[0]); err != nil {
			return fmt.Errorf("serving from memory: %w", err)
		}
	}
	var err error
	s.clients, err = newClients(s.Sides(c))
	return err
}

// Steps implements Stepped.
func (s *listFull) Steps() int {
	if s.pages {
		return len(s.lists) + 1
	}
	return len(s.lists)
}

// Step implements Stepped: it measures one way to read.
func (s *listFull) Step(ctx context.Context, c *cluster.Cluster, side cluster.Side, step int) (Sample, error) {
	sample := Sample{Metrics: map[string]float64{}}
	if side.Name == SideMemory && step > 0 {
		return sample, nil
	}
	with, list, read := s.clients[side.Name], s.inPages(), fullList.sendPages
	if step < len(s.lists) {
		list, read = s.lists[step], fullList.send
	}
	got, err := fullPace().repeat(ctx, side, func(ctx context.Context, _ int) (client.Answer, func() error, error) {
		return read(list, ctx, with, c, side)
	})
	if err != nil {
		return Sample{}, fmt.Errorf("%s: %w", list.title, err)
	}
	list.record(sample, got)
	if s.limit != nil && step == 0 {
		sample.Metrics[rateOf(list).Name] = float64(got.bytes) / megabyte / got.median()
	}
	return sample, nil
}

// Round implements Scenario: all steps on one side.
func (s *listFull) Round(ctx context.Context, c *cluster.Cluster, side cluster.Side) (Sample, error) {
	return allSteps(ctx, s, c, side)
}

// sendPages follows the pages to the last or for mostPages. The answer has the time of all of them.
func (l fullList) sendPages(ctx context.Context, with *client.Client, c *cluster.Cluster, side cluster.Side) (client.Answer, func() error, error) {
	var all client.Answer
	items := 0
	query := maps.Clone(l.query)
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", strconv.Itoa(pageSize))
	for range mostPages {
		answer, err := with.Get(ctx, side.URL(l.kind, c.Sizes.All(), query), l.compressed)
		if err != nil {
			return all, nil, err
		}
		page, err := answer.List()
		if err != nil {
			return all, nil, err
		}
		all.Took += answer.Took
		items += page.Items
		if page.Continue == "" {
			break
		}
		query.Set("continue", page.Continue)
	}
	return all, func() error {
		if wanted := min(c.Sizes.Count(l.kind), mostPages*pageSize); items != wanted {
			return fmt.Errorf("the pages have %d items, wanted are %d", items, wanted)
		}
		return nil
	}, nil
}

// Close implements Scenario.
func (s *listFull) Close(context.Context) error {
	s.clients.close()
	if s.limit == nil {
		return nil
	}
	return s.limit.close()
}
